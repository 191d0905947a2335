package sync

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/runtime/schema"

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
	Unselected    // the object changed and left the selection
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
	if in.Initial {
		writeResources(&b, changes)
	} else {
		writeObjects(&b, changes)
	}
	fmt.Fprintf(&b, "Crmirror-Cluster: %s\nCrmirror-Objects: %d\n", printable(in.Cluster), len(changes))
	return b.String()
}

// subject returns the most telling of the possible subjects that is short enough.
func subject(in MessageInput, changes []Change) string {
	var options []string
	switch {
	case in.Initial:
		total := fmt.Sprintf("%s of %s", count(len(changes), "object"), count(len(resources(changes)), "resource"))
		options = []string{"Mirror cluster " + printable(in.Cluster) + ": " + total, "Mirror a cluster: " + total}
	case len(changes) == 0:
		options = []string{"Update " + MarkerName}
	case len(changes) == 1:
		options = subjectsOfOne(changes[0])
	default:
		options = subjectsOfMany(changes)
	}
	for _, s := range options {
		if utf8.RuneCountInString(s) <= subjectRunes {
			return s
		}
	}
	return options[len(options)-1]
}

// verb is how a message names an operation.
func (o Op) verb() string {
	switch o {
	case Created:
		return "create"
	case Changed:
		return "change"
	case Deleted:
		return "delete"
	case Unselected:
		return "drop unselected"
	case Reshaped:
		return "re-encode"
	}
	return fmt.Sprintf("op-%d", int(o))
}

// subjectsOfOne says what happened to the object and to which fields, the
// longest first.
func subjectsOfOne(c Change) []string {
	object := printable(c.Key.String())
	verb := capital(c.Op.verb())
	if c.Undoes != "" {
		verb = "Put back"
	}
	plain := verb + " " + object
	if len(c.Fields) == 0 {
		return []string{plain}
	}
	fields := make([]string, len(c.Fields))
	var leaves []string
	for i, f := range c.Fields {
		fields[i] = printable(f)
		if leaf := fields[i][strings.LastIndexByte(fields[i], '.')+1:]; leaf != "" && !slices.Contains(leaves, leaf) {
			leaves = append(leaves, leaf)
		}
	}
	of := " of " + object
	options := []string{verb + " " + strings.Join(fields, ", ") + of}
	if !strings.ContainsAny(strings.Join(fields, ""), `"]`) { // a quoted key has no leaf to tell
		options = append(options, verb+" "+strings.Join(leaves, ", ")+of)
	}
	if len(fields) > 1 {
		options = append(options, fmt.Sprintf("%s %d fields%s", verb, len(fields), of))
	}
	return append(options, plain)
}

// subjectsOfMany summarizes by operation and resource, the longest first.
func subjectsOfMany(changes []Change) []string {
	kinds := resources(changes)
	where := namespaceOf(changes)
	var full, short, bare []string
	for ops := changes; len(ops) > 0; {
		op := ops[0].Op
		n := slices.IndexFunc(ops, func(c Change) bool { return c.Op != op })
		if n < 0 {
			n = len(ops)
		}
		var parts []string
		for _, r := range resources(ops[:n]) {
			parts = append(parts, fmt.Sprintf("%d %s", r.count, r.name))
		}
		full = append(full, op.verb()+" "+strings.Join(parts, ", "))
		short = append(short, fmt.Sprintf("%s %d", op.verb(), n))
		bare = append(bare, fmt.Sprintf("%s %s", op.verb(), count(n, "object")))
		ops = ops[n:]
	}
	if len(kinds) == 1 {
		s := capital(strings.Join(short, ", ")) + " " + kinds[0].name
		return []string{s + where, s, capital(strings.Join(bare, ", "))}
	}
	s := capital(strings.Join(full, ", "))
	sum := fmt.Sprintf("%s objects of %d resources", capital(strings.Join(short, ", ")), len(kinds))
	return []string{s + where, s, sum + where, sum}
}

// namespaceOf returns " in <ns>" when all changes lie in one namespace.
func namespaceOf(changes []Change) string {
	ns := changes[0].Key.Namespace
	if ns == "" || slices.ContainsFunc(changes, func(c Change) bool { return c.Key.Namespace != ns }) {
		return ""
	}
	return " in " + printable(ns)
}

// resourceCount is how many of the changes concern a resource.
type resourceCount struct {
	name  string
	count int
}

func resources(changes []Change) []resourceCount {
	counts := map[schema.GroupResource]int{}
	for _, c := range changes {
		counts[c.Key.GroupResource()]++
	}
	list := make([]resourceCount, 0, len(counts))
	for gr, n := range counts {
		list = append(list, resourceCount{printable(gr.String()), n})
	}
	slices.SortFunc(list, func(a, b resourceCount) int { return strings.Compare(a.name, b.name) })
	return list
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
	var op Op
	for i, c := range changes {
		if i == listedLines {
			fmt.Fprintf(b, "and %d more\n", len(changes)-i)
			break
		}
		if c.Op != op {
			if i > 0 {
				b.WriteByte('\n')
			}
			op = c.Op
			b.WriteString(op.heading() + "\n")
		}
		writeObject(b, c)
	}
	if len(changes) > 0 {
		b.WriteByte('\n')
	}
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
		return "Unselected, since they changed:"
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

// shorten cuts s to n runes, the last of them an ellipsis.
func shorten(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-1]) + "…"
}
