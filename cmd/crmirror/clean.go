package main

import (
	"fmt"
	"strings"

	"github.com/crmirror/crmirror/sync"
)

// clean makes text for people. The format is ours and may have line breaks; what stands in
// it comes from files, objects, commits and servers.
//
// Invariant: no argument leaves its line, or holds what a terminal would obey. Test: TestClean.
func clean(format string, args ...any) string {
	lines := make([]any, len(args))
	for i, arg := range args {
		switch x := arg.(type) {
		case string:
			lines[i] = sync.Line(x)
		case sync.Shown:
			lines[i] = sync.Line(string(x))
		case fmt.Stringer:
			lines[i] = sync.Line(x.String())
		case error:
			lines[i] = sync.Line(x.Error())
		default:
			lines[i] = arg
		}
	}
	return fmt.Sprintf(format, lines...)
}

// cleanLines is a text of several lines without what a terminal would obey.
func cleanLines(text string) string {
	lines := strings.Split(strings.ReplaceAll(text, "\t", "  "), "\n")
	for i, line := range lines {
		lines[i] = sync.Line(line)
	}
	return strings.Join(lines, "\n")
}
