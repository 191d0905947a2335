package config

import (
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

const (
	maxFileBytes = 1 << 20
	maxNodes     = 100_000 // after aliases are followed
)

// decoder lays a YAML document over a Config. Unlike the library's it reports
// every mistake, and remembers the line of each key.
type decoder struct {
	*places
	nodes int
}

// decodeFile reads content into c. It returns false when the content is not one
// YAML document, so that nothing more can be said of it.
func (d *decoder) decodeFile(content []byte, c *Config) bool {
	if len(content) > maxFileBytes {
		d.report("", "is larger than %d bytes", maxFileBytes)
		return false
	}
	reader := yaml.NewDecoder(strings.NewReader(string(content)))
	var doc yaml.Node
	if err := reader.Decode(&doc); err != nil {
		if !errors.Is(err, io.EOF) {
			d.syntax(err)
			return false
		}
		d.report("", "is empty; it starts with apiVersion: %s, kind: %s", APIVersion, Kind)
		return false
	}
	var second yaml.Node
	if err := reader.Decode(&second); err == nil {
		d.at(second.Line, "", "holds a second document; it must be one")
		return false
	} else if !errors.Is(err, io.EOF) {
		d.syntax(err)
		return false
	}
	root := doc.Content[0]
	if root.Kind != yaml.MappingNode {
		d.at(root.Line, "", "is %s, want keys and values", nodeKind(root))
		return false
	}
	d.decodeMap("", root, reflect.ValueOf(c).Elem())
	return true
}

// yamlLine finds the line that the library's messages name.
var yamlLine = regexp.MustCompile(`^(?:yaml: )?(?:line (\d+): )?`)

func (d *decoder) syntax(err error) {
	m := yamlLine.FindStringSubmatch(err.Error())
	line, _ := strconv.Atoi(m[1]) // 0, no line, when there is none
	d.at(line, "", "is no YAML: %s", err.Error()[len(m[0]):])
}

// decode lays node over v, whose place is path; the line is that of its key.
func (d *decoder) decode(path string, line int, node *yaml.Node, v reflect.Value) {
	d.set[path] = place{d.file, line}
	if d.nodes++; d.nodes > maxNodes {
		if d.nodes == maxNodes+1 {
			d.report(path, "the configuration is too large")
		}
		return
	}
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	if node.Kind == yaml.ScalarNode && node.ShortTag() == "!!null" {
		return // "key:" without a value keeps the default
	}
	switch {
	case v.Kind() == reflect.Struct:
		d.decodeMap(path, node, v)
	case v.Kind() == reflect.Slice:
		d.decodeList(path, node, v)
	case node.Kind != yaml.ScalarNode:
		d.report(path, "is %s, want %s", nodeKind(node), wanted(v.Type()))
	default:
		d.decodeScalar(path, node, v)
	}
}

func (d *decoder) decodeMap(path string, node *yaml.Node, v reflect.Value) {
	if node.Kind != yaml.MappingNode {
		d.report(path, "is %s, want keys and values", nodeKind(node))
		return
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		at := join(path, key.Value)
		first, duplicate := seen[key.Value]
		seen[key.Value] = key.Line
		field, known := fieldNamed(v, key.Value)
		switch {
		case key.Kind != yaml.ScalarNode:
			d.at(key.Line, path, "holds a key that is %s", nodeKind(key))
		case duplicate:
			d.at(key.Line, at, "stands here twice, first on line %d", first)
		case !known:
			d.at(key.Line, path, "unknown key %q%s", key.Value, Suggest(key.Value, fieldNames(v)))
		default:
			d.decode(at, key.Line, value, field)
		}
	}
}

// at reports a mistake on a line that is not the one of its path's value.
func (d *decoder) at(line int, path, format string, args ...any) {
	d.errors = append(d.errors, &Error{Source: d.file, Line: line, Path: path, Msg: fmt.Sprintf(format, args...)})
}

func (d *decoder) decodeList(path string, node *yaml.Node, v reflect.Value) {
	if node.Kind != yaml.SequenceNode {
		d.report(path, "is %s, want a list", nodeKind(node))
		return
	}
	list := reflect.MakeSlice(v.Type(), len(node.Content), len(node.Content))
	for i, item := range node.Content {
		d.decode(itemPath(path, i), item.Line, item, list.Index(i))
	}
	v.Set(list)
}

func (d *decoder) decodeScalar(path string, node *yaml.Node, v reflect.Value) {
	tag := node.ShortTag()
	if v.Kind() == reflect.String && tag != "!!str" {
		d.report(path, "%s is not text to YAML; put it in quotes", node.Value)
		return
	}
	if v.Kind() != reflect.String && tag == "!!str" && v.Type() != durationType {
		d.report(path, "is text, want %s", wanted(v.Type()))
		return
	}
	if err := setScalar(v, node.Value); err != nil {
		d.report(path, "%v", err)
	}
}

var durationType = reflect.TypeFor[time.Duration]()

// setScalar parses text into a string, bool, int or duration.
func setScalar(v reflect.Value, text string) error {
	switch {
	case v.Type() == durationType:
		dur, err := time.ParseDuration(text)
		if err != nil {
			return fmt.Errorf("%q is no duration; write it like 30s, 5m or 1h30m", text)
		}
		v.SetInt(int64(dur))
	case v.Kind() == reflect.String:
		v.SetString(text)
	case v.Kind() == reflect.Bool:
		b, err := strconv.ParseBool(strings.ToLower(text))
		if err != nil {
			return fmt.Errorf("%q is neither true nor false", text)
		}
		v.SetBool(b)
	default:
		n, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("%q is no whole number", text)
		}
		v.SetInt(int64(n))
	}
	return nil
}

func wanted(t reflect.Type) string {
	switch {
	case t == durationType:
		return "a duration like 30s"
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() == reflect.Int:
		return "a whole number"
	}
	return "text"
}

func nodeKind(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a map"
	case yaml.SequenceNode:
		return "a list"
	}
	return "a single value"
}
