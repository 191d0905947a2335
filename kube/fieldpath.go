package kube

import (
	"fmt"
	"strconv"
	"strings"
)

// FieldPath names fields of an object, as rules write it: ".spec.replicas",
// `.metadata.annotations["x.io/seen"]`, ".spec.items[*].password" (in every list
// item), ".data.*" (every key of a map). Parse it with ParseFieldPath.
type FieldPath struct {
	steps []step
}

// step is one step into a value: a key of a map, any key, or any list item.
type step struct {
	key     string
	anyKey  bool
	anyItem bool
}

// ParseFieldPath reads a field path; the leading dot may be left out. It refuses
// paths that would take an object's identity away, like ".metadata.name". List items have no
// numbers here: what stands at a place today may stand elsewhere tomorrow.
func ParseFieldPath(s string) (FieldPath, error) {
	p := pathParser{in: s}
	path, err := p.parse()
	if err != nil {
		return FieldPath{}, fmt.Errorf("field path %q, character %d: %w", s, p.pos+1, err)
	}
	if path.namesIdentity() {
		return FieldPath{}, fmt.Errorf("field path %q: an object without it could not be told from others", s)
	}
	return path, nil
}

// String writes the path so that ParseFieldPath reads it back.
func (p FieldPath) String() string {
	var b strings.Builder
	for _, s := range p.steps {
		switch {
		case s.anyItem:
			b.WriteString("[*]")
		case s.anyKey:
			b.WriteString(".*")
		default:
			writeKey(&b, s.key)
		}
	}
	return b.String()
}

// writeKey appends a map key as a step of a path: .key or ["key"], the latter with
// the escapes of a Go string, so that no key breaks out of its line.
func writeKey(b *strings.Builder, key string) {
	if key != "" && strings.IndexFunc(key, func(r rune) bool { return !bareRune(r) }) < 0 {
		b.WriteString("." + key)
		return
	}
	b.WriteString("[" + strconv.Quote(key) + "]")
}

// bareRune tells whether a key may hold the rune without being quoted.
func bareRune(r rune) bool {
	switch {
	case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
		return true
	}
	return r == '-' || r == '_' || r == '$' || r == '/'
}

// namesIdentity tells whether the path covers apiVersion, kind, name or namespace.
func (p FieldPath) namesIdentity() bool {
	first := p.steps[0]
	switch {
	case first.anyKey:
		return len(p.steps) == 1 || namesMetadataIdentity(p.steps[1:])
	case first.key == "apiVersion" || first.key == "kind":
		return true
	case first.key == "metadata":
		return len(p.steps) == 1 || namesMetadataIdentity(p.steps[1:])
	}
	return false
}

func namesMetadataIdentity(steps []step) bool {
	return len(steps) > 0 && (steps[0].anyKey || steps[0].key == "name" || steps[0].key == "namespace")
}

type pathParser struct {
	in  string
	pos int // byte
}

func (p *pathParser) parse() (FieldPath, error) {
	var path FieldPath
	if p.in == "" {
		return path, fmt.Errorf("is empty")
	}
	if p.in[0] != '.' && p.in[0] != '[' {
		s, err := p.key()
		if err != nil {
			return path, err
		}
		path.steps = append(path.steps, s)
	}
	for p.pos < len(p.in) {
		s, err := p.step()
		if err != nil {
			return path, err
		}
		path.steps = append(path.steps, s)
	}
	if path.steps[0].anyItem {
		p.pos = 0
		return path, fmt.Errorf("an object is no list")
	}
	return path, nil
}

func (p *pathParser) step() (step, error) {
	switch p.in[p.pos] {
	case '.':
		p.pos++
		return p.key()
	case '[':
		return p.bracket()
	default:
		return step{}, fmt.Errorf(`want "." or "["; other keys are written as ["key"]`)
	}
}

func (p *pathParser) key() (step, error) {
	rest := p.in[p.pos:]
	if strings.HasPrefix(rest, "*") {
		p.pos++
		return step{anyKey: true}, nil
	}
	end := strings.IndexFunc(rest, func(r rune) bool { return !bareRune(r) })
	if end < 0 {
		end = len(rest)
	}
	if end == 0 {
		return step{}, fmt.Errorf(`want a key; special characters are written as ["key"]`)
	}
	p.pos += end
	return step{key: rest[:end]}, nil
}

func (p *pathParser) bracket() (step, error) {
	rest := p.in[p.pos:]
	if strings.HasPrefix(rest, "[*]") {
		p.pos += len("[*]")
		return step{anyItem: true}, nil
	}
	if !strings.HasPrefix(rest, `["`) {
		return step{}, fmt.Errorf(`want [*] or ["key"]`)
	}
	quoted, err := strconv.QuotedPrefix(rest[1:])
	if err != nil {
		return step{}, fmt.Errorf(`want a key in double quotes, with \" and \\ for those characters`)
	}
	key, err := strconv.Unquote(quoted)
	if err != nil {
		return step{}, err
	}
	p.pos += len("[") + len(quoted)
	if !strings.HasPrefix(p.in[p.pos:], "]") {
		return step{}, fmt.Errorf(`want "]" after the key`)
	}
	p.pos++
	return step{key: key}, nil
}
