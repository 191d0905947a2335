// Package unified writes the difference of two texts as diff -u does, for people to read
// on a terminal and for tools that take patches.
package unified

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// context is how many lines are shown around what changed.
const context = 3

// Write writes how new differs from old, and nothing when it does not; nil is a file that is not
// there. Names and lines come from objects and files: what a terminal would act upon in them
// is written as question marks, and with that a patch of it does not apply. With color, ANSI
// sequences set off what was removed and added.
func Write(w io.Writer, oldName, newName string, old, new []byte, color bool) error {
	hunks := hunksOf(compare(split(old), split(new)))
	if len(hunks) == 0 {
		return nil
	}
	out := &printer{w: bufio.NewWriter(w), color: color}
	out.print(bold, "--- "+fileName("a/", oldName, old == nil))
	out.print(bold, "+++ "+fileName("b/", newName, new == nil))
	for _, h := range hunks {
		out.print(cyan, fmt.Sprintf("@@ -%s +%s @@", span(h.old, h.oldLines), span(h.new, h.newLines)))
		for _, l := range h.lines {
			text, whole := strings.CutSuffix(l.text, "\n")
			out.print(colorOf(l.op), string(l.op)+text)
			if !whole {
				out.print(plain, `\ No newline at end of file`)
			}
		}
	}
	return out.w.Flush()
}

func split(content []byte) []string {
	var lines []string
	for l := range strings.Lines(string(content)) {
		lines = append(lines, l)
	}
	return lines
}

func fileName(prefix, name string, absent bool) string {
	if absent {
		return "/dev/null"
	}
	return prefix + name
}

// span is a hunk's place in one of the files, as diff -u writes it: where the file has none of it, the line before.
func span(first, lines int) string {
	switch lines {
	case 0:
		return fmt.Sprintf("%d,0", first-1)
	case 1:
		return fmt.Sprint(first)
	}
	return fmt.Sprintf("%d,%d", first, lines)
}

// hunk is a run of lines with what changed in it. old and new are the numbers of its
// first line in the files, from 1.
type hunk struct {
	old, oldLines, new, newLines int
	lines                        []line
}

// hunksOf cuts a difference into hunks: what changed, and the lines around it.
func hunksOf(lines []line) []hunk {
	shown := make([]bool, len(lines))
	for i, l := range lines {
		if l.op != kept {
			for j := max(0, i-context); j <= min(len(lines)-1, i+context); j++ {
				shown[j] = true
			}
		}
	}
	var hunks []hunk
	oldAt, newAt := 1, 1
	for i, l := range lines {
		if shown[i] && (i == 0 || !shown[i-1]) {
			hunks = append(hunks, hunk{old: oldAt, new: newAt})
		}
		inOld, inNew := 1, 1
		switch l.op {
		case removed:
			inNew = 0
		case added:
			inOld = 0
		}
		oldAt, newAt = oldAt+inOld, newAt+inNew
		if shown[i] {
			h := &hunks[len(hunks)-1]
			h.oldLines, h.newLines = h.oldLines+inOld, h.newLines+inNew
			h.lines = append(h.lines, l)
		}
	}
	return hunks
}

// What sets a line off on a terminal.
const (
	plain = ""
	bold  = "\x1b[1m"
	red   = "\x1b[31m"
	green = "\x1b[32m"
	cyan  = "\x1b[36m"
	reset = "\x1b[m"
)

func colorOf(op byte) string {
	switch op {
	case removed:
		return red
	case added:
		return green
	}
	return plain
}

type printer struct {
	w     *bufio.Writer // keeps the first error, for Flush
	color bool
}

// print writes one line.
func (p *printer) print(color, text string) {
	text = printable(text)
	if p.color && color != plain {
		text = color + text + reset
	}
	_, _ = p.w.WriteString(text + "\n")
}

// printable replaces what is no printable character, space or tab.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || r != '\t' && !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}
