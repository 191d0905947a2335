package canon

import "strings"

// literal tells whether a string may be a literal block: text of lines, of which
// the first has something to show, so that readers find the indent by themselves. Blanks
// at the very end, and a last line of blanks, are trimmed by some readers.
func literal(s string) bool {
	nl := strings.IndexByte(s, '\n')
	if nl <= 0 || s[0] == ' ' || s[0] == '\t' {
		return false
	}
	body := strings.TrimRight(s, "\n")
	if last := body[strings.LastIndexByte(body, '\n')+1:]; len(body) == len(s) && strings.TrimRight(s, " \t") != s ||
		strings.Trim(last, " \t") == "" {
		return false
	}
	for i := 0; i < len(s); i++ {
		if c := s[i]; c < 0x20 && c != '\n' && c != '\t' || c == 0x7F {
			return false
		} else if c >= 0x80 {
			return literalRunes(s[i:])
		}
	}
	return true
}

func literalRunes(s string) bool {
	for _, r := range s {
		if r == 0xFFFD || unprintable(r) || override(r) {
			return false
		}
	}
	return true
}

// literal writes a literal block: the header, then every line at the indent.
// Empty lines have no blanks. The newline of the last line is left to the caller.
func (w *writer) literal(s string, indent int) {
	w.out = append(w.out, '|')
	body := strings.TrimRight(s, "\n")
	switch len(s) - len(body) {
	case 0:
		w.out = append(w.out, '-')
	case 1:
	default:
		w.out = append(w.out, '+')
		body = s[:len(s)-1]
	}
	for line := range strings.SplitSeq(body, "\n") {
		if w.full() {
			return
		}
		w.out = append(w.out, '\n')
		if line != "" {
			w.indent(indent)
			w.out = append(w.out, line...)
		}
	}
}

// single tells whether a string is best read in single quotes, which escape
// nothing: it has double quotes or backslashes, and everything in it is seen.
func single(s string) bool {
	if !strings.ContainsAny(s, `"\`) || strings.ContainsAny(s, "'\n\t") {
		return false
	}
	for _, r := range s {
		if r == 0xFFFD || hidden(r) || wideBlank(r) {
			return false
		}
	}
	return true
}

// quoted writes a string in double quotes on one line.
func (w *writer) quoted(s string) {
	if !w.valid(s) {
		return
	}
	w.out = append(w.out, '"')
	w.escape(s)
	w.out = append(w.out, '"')
}

// quotedLines writes a string in double quotes, broken after each newline of the
// text by an escaped line break, so that a change of a line is a change of a line.
func (w *writer) quotedLines(s string, indent int) {
	if strings.IndexByte(s, '\n') < 0 {
		w.quoted(s)
		return
	}
	if !w.valid(s) {
		return
	}
	w.out = append(w.out, '"')
	for i, line := range strings.SplitAfter(s, "\n") {
		if w.full() {
			return
		}
		if i > 0 && line != "" {
			w.out = append(w.out, '\\', '\n')
			w.indent(indent)
			// Blanks that begin a line are indent, unless the first is escaped.
			if line[0] == ' ' {
				w.out = append(w.out, '\\')
			}
		}
		w.escape(line)
	}
	w.out = append(w.out, '"')
}

// escape writes the inside of double quotes: escapes that YAML 1.1 and 1.2 share,
// for everything that is not seen on a page.
func (w *writer) escape(s string) {
	const hex = "0123456789ABCDEF"
	start := 0
	for i, r := range s {
		if r >= 0x20 && r < 0x7F && r != '"' && r != '\\' || r >= 0x7F && !hidden(r) && !wideBlank(r) {
			continue
		}
		w.out = append(w.out, s[start:i]...)
		start = i + len(string(r))
		switch r {
		case '"', '\\':
			w.out = append(w.out, '\\', byte(r))
		case '\n':
			w.out = append(w.out, '\\', 'n')
		case '\r':
			w.out = append(w.out, '\\', 'r')
		case '\t':
			w.out = append(w.out, '\\', 't')
		default:
			digits, letter := 4, byte('u')
			if r > 0xFFFF {
				digits, letter = 8, 'U'
			}
			w.out = append(w.out, '\\', letter)
			for shift := 4 * (digits - 1); shift >= 0; shift -= 4 {
				w.out = append(w.out, hex[r>>shift&0xF])
			}
		}
	}
	w.out = append(w.out, s[start:]...)
}
