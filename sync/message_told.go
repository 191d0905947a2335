package sync

import (
	"strings"

	"github.com/crmirror/crmirror/kube"
)

// told is what a commit message of ours says of one object.
type told struct {
	op      Op
	manager string
	undoes  string
}

// toldOf reads what Message wrote of an object; ok is false when that is not there: in a person's commit,
// in an initial one, or beyond the objects that a large one lists.
func toldOf(message string, key kube.Key) (t told, ok bool) {
	if !strings.Contains(message, "\nCrmirror-Cluster: ") {
		return t, false
	}
	object := "- " + printable(key.String())
	for line := range strings.Lines(message) {
		line = strings.TrimRight(line, "\r\n")
		if op, is := opOf(line); is {
			t.op = op
			continue
		}
		rest, found := strings.CutPrefix(line, object)
		if !found || t.op == 0 || rest != "" && !strings.HasPrefix(rest, ": ") && !strings.HasPrefix(rest, " (by ") && !strings.HasPrefix(rest, "; undoes ") {
			continue
		}
		if i := strings.LastIndex(rest, "; undoes "); i >= 0 {
			t.undoes, rest = rest[i+len("; undoes "):], rest[:i]
		}
		if i := strings.LastIndex(rest, " (by "); i >= 0 && strings.HasSuffix(rest, ")") {
			t.manager = rest[i+len(" (by ") : len(rest)-1]
		}
		t.manager, t.undoes = printable(t.manager), printable(t.undoes)
		return t, true
	}
	return told{}, false
}

// opOf reads the heading of a group of objects.
func opOf(line string) (Op, bool) {
	for op := Created; op <= Reshaped; op++ {
		if line == op.heading() {
			return op, true
		}
	}
	return 0, false
}

// refine says more precisely what became of a file, where the message does.
func (t told) refine(what string) string {
	switch {
	case t.op == Unselected && what == wasDeleted:
		return "unselected"
	case t.op == Reshaped && what == wasChanged:
		return "re-encoded"
	}
	return what
}
