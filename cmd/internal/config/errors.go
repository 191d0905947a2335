package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Error is one mistake in a configuration, or a file of it that cannot be read.
type Error struct {
	Source string // the file, variable or flag; "" when nothing set the value
	Line   int    // in the file, from 1; 0 = none
	Path   string // of the key: "select[0].resources"; "" = the whole
	Msg    string
}

// Error writes "config.yaml:12: select[0].resources: what is wrong".
func (e *Error) Error() string {
	var b strings.Builder
	if e.Source != "" {
		b.WriteString(e.Source)
		if e.Line > 0 {
			fmt.Fprintf(&b, ":%d", e.Line)
		}
		b.WriteString(": ")
	}
	if e.Path != "" {
		b.WriteString(e.Path + ": ")
	}
	b.WriteString(e.Msg)
	return b.String()
}

// Errors are all mistakes of a configuration, in the order of their lines.
type Errors []*Error

// Error writes one mistake a line.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, err := range e {
		lines[i] = err.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap lets errors.As find a single mistake.
func (e Errors) Unwrap() []error {
	out := make([]error, len(e))
	for i, err := range e {
		out[i] = err
	}
	return out
}

// place is where a value was set.
type place struct {
	source string
	line   int
}

// places collects mistakes and remembers where each key was set.
type places struct {
	file      string // "" when there is none
	elsewhere bool   // the agent's other files are not on this machine
	set       map[string]place
	errors    Errors
}

// report notes a mistake at a key. A key that nothing set is blamed on the
// nearest of its parents that something did set.
func (p *places) report(path, format string, args ...any) {
	at := p.at(path)
	p.errors = append(p.errors, &Error{Source: at.source, Line: at.line, Path: path, Msg: fmt.Sprintf(format, args...)})
}

// at returns where a key was set, or the nearest of its parents that something did set.
func (p *places) at(path string) place {
	for parent := path; parent != ""; parent = parentOf(parent) {
		if set, ok := p.set[parent]; ok {
			return set
		}
	}
	return place{source: p.file}
}

// reported tells whether a mistake at the key, or within it, is known already.
func (p *places) reported(path string) bool {
	return slices.ContainsFunc(p.errors, func(e *Error) bool {
		return e.Path == path || strings.HasPrefix(e.Path, path+".") || strings.HasPrefix(e.Path, path+"[")
	})
}

// sorted returns the mistakes: the file's by line, then the others as they came.
func (p *places) sorted() Errors {
	slices.SortStableFunc(p.errors, func(a, b *Error) int {
		if a.Source != b.Source || a.Source != p.file {
			return cmp.Compare(rank(a, p.file), rank(b, p.file))
		}
		return cmp.Compare(a.Line, b.Line)
	})
	return p.errors
}

func rank(e *Error, file string) int {
	if e.Source == file {
		return 0
	}
	return 1
}

// parentOf returns the path of the map or list that holds a key.
func parentOf(path string) string {
	return path[:max(strings.LastIndexAny(path, ".["), 0)]
}
