package sync

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/crmirror/crmirror/gitstore"
	"github.com/crmirror/crmirror/kube"
)

// Op is what a commit does to the file of one object.
type Op int

// What a commit does to a file, in the order in which a message tells it.
const (
	Created    Op = iota + 1
	Changed       // the object changed, or a person's change of its file is undone
	Deleted       // the object is gone
	Unselected    // the object lives, but left the selection
	Reshaped      // the same object under changed shaping rules
)

// Change is one object's part in a commit.
type Change struct {
	Key     kube.Key
	Op      Op
	Fields  []string     // changed field paths, if known
	Manager kube.Manager // who changed the object, if known
	Undoes  string       // whose commit to the file this undoes: "3f2a1bc by Jane Doe"; "" = nobody's

	path   string
	blob   gitstore.Hash // after; zero when the file goes
	before gitstore.Hash // zero when there was none
}

// MessageInput is what a commit message tells of.
type MessageInput struct {
	Cluster string
	Initial bool // the first commit of this cluster on the path
	Settled Side // the side that a person settled conflicts with; "" = nobody did
	Changes []Change
}

const (
	subjectRunes = 72 // what git log --oneline and the forges show whole
	listedLines  = 50 // objects (or, initially, resources) named in the body
	nameRunes    = 64 // of a manager or committer
	fieldRunes   = 120
)

// Message returns the commit's message: a subject that says what happened, a
// body that lists the objects, and the trailers Crmirror-Cluster and
// Crmirror-Objects (how many objects the commit changes).
//
// Whatever objects, fields and managers are called, they cannot forge a line,
// and thus no trailer: everything foreign goes through printable.
// TestMessageCannotBeForged.
func Message(in MessageInput) string {
	changes := slices.Clone(in.Changes)
	slices.SortStableFunc(changes, func(a, b Change) int {
		if a.Op != b.Op {
			return int(a.Op - b.Op)
		}
		return CompareKeys(a.Key, b.Key)
	})
	var b strings.Builder
	b.WriteString(shorten(subject(in, changes), subjectRunes) + "\n\n")
	if in.Settled != "" {
		fmt.Fprintf(&b, "Settled by crmirror resolve --take %s.\n\n", in.Settled)
	}
	if in.Initial {
		writeResources(&b, changes)
	} else {
		writeObjects(&b, changes)
	}
	fmt.Fprintf(&b, "Crmirror-Cluster: %s\nCrmirror-Objects: %d\n", printable(in.Cluster), len(changes))
	return b.String()
}

// writeResources writes the body of the initial commit.
func writeResources(b *strings.Builder, changes []Change) {
	list := resources(changes)
	for i, r := range list {
		if i == listedLines {
			fmt.Fprintf(b, "and %s more\n", count(len(list)-i, "resource"))
			break
		}
		fmt.Fprintf(b, "- %d %s\n", r.count, r.name)
	}
	if len(list) > 0 {
		b.WriteByte('\n')
	}
}

// writeObjects writes the body of any other commit: the objects, grouped by operation.
func writeObjects(b *strings.Builder, changes []Change) {
	groups := byOp(changes)
	for i, lines := range share(groups, listedLines) {
		group := groups[i]
		b.WriteString(group[0].Op.heading() + "\n")
		for _, c := range group[:lines] {
			writeObject(b, c)
		}
		if more := len(group) - lines; more > 0 {
			fmt.Fprintf(b, "and %d more\n", more)
		}
		b.WriteByte('\n')
	}
}

// byOp splits sorted changes into those of each operation.
func byOp(changes []Change) [][]Change {
	var groups [][]Change
	for start, i := 0, 1; i <= len(changes); i++ {
		if i == len(changes) || changes[i].Op != changes[start].Op {
			groups = append(groups, changes[start:i])
			start = i
		}
	}
	return groups
}

// share divides the lines of the body among the groups: what one does not need
// goes to the larger ones, so that twenty deletions do not vanish behind a
// thousand changes.
func share(groups [][]Change, lines int) []int {
	bySize := make([]int, len(groups))
	for i := range bySize {
		bySize[i] = i
	}
	slices.SortStableFunc(bySize, func(a, b int) int { return len(groups[a]) - len(groups[b]) })
	shares := make([]int, len(groups))
	for i, g := range bySize {
		shares[g] = min(len(groups[g]), lines/(len(groups)-i))
		lines -= shares[g]
	}
	return shares
}

func (o Op) heading() string {
	switch o {
	case Created:
		return "Created:"
	case Changed:
		return "Changed:"
	case Deleted:
		return "Deleted:"
	case Unselected:
		return "Unselected:"
	case Reshaped:
		return "Re-encoded under changed shaping rules:"
	}
	return o.verb() + ":"
}

func writeObject(b *strings.Builder, c Change) {
	b.WriteString("- " + printable(c.Key.String()))
	if len(c.Fields) > 0 {
		fields := make([]string, len(c.Fields))
		for i, f := range c.Fields {
			fields[i] = shorten(printable(f), fieldRunes)
		}
		b.WriteString(": " + strings.Join(fields, ", "))
	}
	if c.Manager.Name != "" {
		b.WriteString(" (by " + shorten(printable(c.Manager.Name), nameRunes) + ")")
	}
	if c.Undoes != "" {
		b.WriteString("; undoes " + shorten(printable(c.Undoes), nameRunes+16))
	}
	b.WriteByte('\n')
}

func count(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// Printable makes a text that comes from an object or a file fit to be shown: in at most n
// runes, without what is no printable character or plain space.
func Printable(text string, n int) string { return shorten(printable(text), n) }

// printable replaces what is no printable character or plain space: line
// breaks, control and formatting characters, broken UTF-8.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}

// Line makes one line of a text from files, objects, commits or servers, for a terminal, a log
// or an Event: line breaks become "; ", and what is no printable character "?".
func Line(s string) string {
	if strings.ContainsAny(s, "\r\n") {
		s = strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
	}
	return printable(s)
}

// shorten cuts s to n runes, the last of them an ellipsis.
func shorten(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-1]) + "…"
}
