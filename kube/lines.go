package kube

import (
	"bytes"

	yaml2 "go.yaml.in/yaml/v2"
	"go.yaml.in/yaml/v3"
)

// secondDocument returns the line on which the second document begins, or 0.
func secondDocument(content []byte) int {
	dec := yaml.NewDecoder(bytes.NewReader(content))
	var node yaml.Node
	for range 2 {
		node = yaml.Node{}
		if err := dec.Decode(&node); err != nil {
			return 0
		}
	}
	return node.Line
}

// Line returns the line of a file's value at a path, whose steps are map keys (string)
// and list indices (int), or of the nearest value above it that the file has there;
// 0 when it cannot tell.
func Line(content []byte, path []any) int { return lineOf(content, path) }

// lineOf returns the line of the value at a converter's path, or of the nearest
// value above it that the file has at that place; 0 when it cannot tell.
func lineOf(content []byte, path []any) int {
	var doc yaml.Node
	if err := yaml.Unmarshal(content, &doc); err != nil || len(doc.Content) == 0 {
		return 0
	}
	node, line := doc.Content[0], 1
	for _, s := range path {
		if node.Kind == yaml.AliasNode {
			node = node.Alias
		}
		next, at := stepInto(node, s)
		if next == nil {
			return line
		}
		node, line = next, at
	}
	return line
}

// stepInto returns the node one step down, and the line of its key or of itself.
func stepInto(node *yaml.Node, s any) (*yaml.Node, int) {
	switch node.Kind {
	case yaml.SequenceNode:
		if i, ok := s.(int); ok && i < len(node.Content) {
			return node.Content[i], node.Content[i].Line
		}
	case yaml.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			key := node.Content[i]
			if _, bad := s.(badKey); bad && !readsAsText(key) || key.Value == s && !bad {
				return node.Content[i+1], key.Line
			}
		}
	}
	return nil, 0
}

// readsAsText tells whether a YAML 1.1 reader takes a key for text.
func readsAsText(key *yaml.Node) bool {
	if key.Kind != yaml.ScalarNode || key.Style != 0 {
		return key.Kind == yaml.ScalarNode && key.Style&yaml.TaggedStyle == 0
	}
	var v any
	if err := yaml2.Unmarshal([]byte(key.Value), &v); err != nil {
		return false
	}
	_, ok := v.(string)
	return ok
}
