package sync

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

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
		return "unselect"
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
	if c.Undoes != "" && c.Op <= Changed {
		verb = "Put back"
	}
	plain := verb + " " + object
	if len(c.Fields) == 0 {
		return []string{plain}
	}
	var fields, leaves []string
	for _, f := range c.Fields {
		fields = append(fields, printable(f))
		if l := leaf(printable(f)); l != "" && !slices.Contains(leaves, l) {
			leaves = append(leaves, l)
		}
	}
	of := " of " + object
	options := []string{verb + " " + strings.Join(fields, ", ") + of}
	if len(leaves) > 0 {
		options = append(options, verb+" "+strings.Join(leaves, ", ")+of)
	}
	if len(fields) > 1 {
		options = append(options, fmt.Sprintf("%s %d fields%s", verb, len(fields), of))
	}
	return append(options, plain)
}

// leaf returns the last name of a field path, without what stands in brackets:
// "image" of "spec.containers[web].image", "annotations" of `metadata.annotations["a.io/[x]"]`.
func leaf(path string) string {
	var names strings.Builder
	for rest := path; rest != ""; {
		head, inside, found := strings.Cut(rest, "[")
		names.WriteString(head)
		if rest = ""; found {
			rest = afterBracket(inside)
		}
	}
	return names.String()[strings.LastIndexByte(names.String(), '.')+1:]
}

// afterBracket returns what follows a bracket that was opened. A key of a map stands in it in
// quotes, and may hold brackets itself; the name of a list's item stands as it is.
func afterBracket(path string) string {
	if quoted, err := strconv.QuotedPrefix(path); err == nil {
		path = path[len(quoted):]
	}
	_, after, _ := strings.Cut(path, "]")
	return after
}

// subjectsOfMany summarizes by operation and resource, the longest first.
func subjectsOfMany(changes []Change) []string {
	kinds := resources(changes)
	where := namespaceOf(changes)
	var full, short, bare []string
	for _, group := range byOp(changes) {
		op, n := group[0].Op, len(group)
		var parts []string
		for _, r := range resources(group) {
			parts = append(parts, fmt.Sprintf("%d %s", r.count, r.name))
		}
		full = append(full, op.verb()+" "+strings.Join(parts, ", "))
		short = append(short, fmt.Sprintf("%s %d", op.verb(), n))
		bare = append(bare, fmt.Sprintf("%s %s", op.verb(), count(n, "object")))
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
