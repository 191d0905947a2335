package sync

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/crmirror/crmirror/gitstore"
	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/kube/apply"
	"github.com/crmirror/crmirror/kube/threeway"
)

// Conflict is a field, or an object, that git and the cluster have differently, and that
// is written on neither side until a person decides.
type Conflict struct {
	Key     kube.Key
	Object  Object // in the cluster
	File    string // from the repository's root
	Line    int    // of the field in it; 0 when the file has none
	Field   string // as server-side apply writes it, .spec.ports[name="http"].port; "" is the object
	Reason  string
	Base    Shown
	Git     Shown
	Cluster Shown
	Owners  []apply.Owner // of the field in the cluster
	Commit  string        // the branch's commit that gave the field the value that git has; "" when history here does not tell
	Author  string
	When    time.Time
	Instead string // of taking git's value, where that cannot be applied; else ""

	path fieldpath.Path
}

// Object names an object of the cluster, as an Event refers to it. Without a UID there is none.
type Object struct {
	APIVersion, Kind, Namespace, Name string
	UID                               types.UID
}

func (j *judgement) object() Object {
	o := Object{APIVersion: j.kind.GroupVersion().String(), Kind: j.kind.Kind, Namespace: j.key.Namespace, Name: j.key.Name}
	if j.live != nil {
		o.UID = j.live.GetUID()
	}
	return o
}

// Shown is a value as people may see it: compact JSON, cut to a size, or a word in
// parentheses: (absent), (unknown), (redacted).
type Shown string

// Words that stand for a value.
const (
	absent   Shown = "(absent)"
	unknown  Shown = "(unknown)"
	redacted Shown = "(redacted)"
	object   Shown = "(the object)"
)

// shownRunes bounds a value that is shown.
const shownRunes = 120

// instead says what to do where git's value of a conflict cannot be applied; "" where it can.
func (t *twoWay) instead(j *judgement, c threeway.Conflict) string {
	owner, owned := strings.CutPrefix(c.Reason, ownedBy)
	switch {
	case owned:
		return "change it where " + owner + " has it from, or take " + owner + " out of apply.respectManagers"
	case c.Reason == threeway.ReasonShaped:
		return "change it in the cluster, or the rule that drops or redacts it"
	case len(c.Path) == 0 && j.git == nil && !t.opts.Prune:
		return "set apply.prune: true, or delete the object with kubectl"
	}
	return ""
}

// Settle returns the commands that settle the conflict: those that can.
func (c *Conflict) Settle() []string {
	at := c.Key.GroupResource().String() + " " + c.Key.Name
	if c.Key.Namespace != "" {
		at += " -n " + c.Key.Namespace
	}
	if c.Field != "" {
		at += " --field " + quoteShell(c.Field)
	}
	cluster := "crmirror resolve " + at + " --take cluster"
	if c.Instead != "" {
		return []string{cluster}
	}
	return []string{"crmirror resolve " + at + " --take git", cluster}
}

func quoteShell(s string) string {
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// conflictsOf tells of the conflicts of a judged object; since, if any, has for each which commit
// gave git its value.
func (m *Mirror) conflictsOf(j *judgement, since []gitstore.Change) []Conflict {
	var out []Conflict
	for i, c := range j.decision.Conflicts {
		x := Conflict{
			Key: j.key, Object: j.object(), File: m.repo.FullPath(j.path), Field: fieldText(c.Path), Reason: c.Reason,
			Base: j.show(c.Path, c.Base), Git: j.show(c.Path, c.Git), Cluster: j.show(c.Path, c.Cluster),
			Owners: j.owners.Owners(c.Path), Instead: m.two.instead(j, c),
			path: slices.Clone(c.Path),
		}
		if since != nil {
			x.Commit, x.Author, x.When = since[i].Commit, since[i].Author, since[i].When
		}
		if j.git != nil {
			x.Line = kube.Line(j.file, stepsOf(j.git, c.Path))
		}
		out = append(out, x)
	}
	return out
}

func fieldText(p fieldpath.Path) string {
	if len(p) == 0 {
		return ""
	}
	return p.String()
}

// show writes a value for people. What the rules redact, and all of a Secret, is not shown.
func (j *judgement) show(path fieldpath.Path, v threeway.Value) Shown {
	switch {
	case !v.Known:
		return unknown
	case !v.Present:
		return absent
	case j.kind.Group == "" && j.kind.Kind == "Secret", v.Hidden, kube.ContainsRedaction(v.V):
		return redacted
	case len(path) == 0:
		return object
	}
	b, err := json.Marshal(v.V)
	if err != nil {
		return "(unreadable)"
	}
	return Shown(shorten(printable(string(b)), shownRunes))
}

// stepsOf translates a path into map keys and list indices of content, as far as
// content has it.
func stepsOf(content any, path fieldpath.Path) []any {
	var steps []any
	for _, e := range path {
		switch {
		case e.FieldName != nil:
			fields, _ := content.(map[string]any)
			steps, content = append(steps, *e.FieldName), fields[*e.FieldName]
		case e.Index != nil:
			list, _ := content.([]any)
			if *e.Index >= len(list) {
				return steps
			}
			steps, content = append(steps, *e.Index), list[*e.Index]
		default:
			list, _ := content.([]any)
			i := slices.IndexFunc(list, func(item any) bool { return isItem(item, e) })
			if i < 0 {
				return steps
			}
			steps, content = append(steps, i), list[i]
		}
	}
	return steps
}

// isItem tells whether a list item is the one that a path's step names.
func isItem(item any, e fieldpath.PathElement) bool {
	if e.Value != nil {
		return kube.EqualValues(item, (*e.Value).Unstructured())
	}
	fields, ok := item.(map[string]any)
	if !ok || e.Key == nil {
		return false
	}
	for _, key := range *e.Key {
		if !kube.EqualValues(fields[key.Name], key.Value.Unstructured()) {
			return false
		}
	}
	return true
}

// applied is one write that landed.
type applied struct {
	action            threeway.Action
	fields            *fieldpath.Set
	displaced         []apply.Displaced
	returned, altered []fieldpath.Path
}

// Applied is one object that was written to the cluster.
type Applied struct {
	Key       kube.Key
	Action    string            // created, configured, deleted
	Fields    []string          // that were set or removed
	Displaced []apply.Displaced // owners that lost a field to us
	Notes     []string          // what the server made of it
}

// Refusal is an object whose change was not written, or cannot be judged.
type Refusal struct {
	Key    kube.Key
	Object Object
	File   string // from the repository's root
	Line   int    // of the first field that was to be set; 0 when that tells nothing
	Text   string
	Retry  bool      // it may be applied later though nobody touches the object
	Next   time.Time // when it is tried again, unless the object moves before; zero: in the next cycle
}

// tellJudged fills in what the report says of the objects judged, and of those that
// nothing moved of since.
func (m *Mirror) tellJudged(ctx context.Context, report *Report, judged []*judgement) {
	t, since := m.two, m.conflictSince(ctx, judged)
	for _, j := range judged {
		n := len(j.decision.Conflicts)
		left := leftOpen{gitBlob: j.gitBlob, baseBlob: j.baseBlob, judged: t.now, retry: j.again, conflicts: m.conflictsOf(j, since[:n])}
		since = since[n:]
		file := m.repo.FullPath(j.path)
		if j.finding != "" {
			left.findings = append(left.findings, Finding{Path: j.path, Line: j.line, Key: j.key, Text: j.finding})
			left.unreadable = j.git == nil && !j.gitBlob.IsZero()
		}
		for _, f := range j.decision.Findings {
			text := string(f.Kind) + ": " + f.Path.String()
			if f.Kind == threeway.DropsFinalizer {
				text += "; put it back, or set apply.removeFinalizers"
			}
			line := kube.Line(j.file, stepsOf(j.git, f.Path))
			undone := f.Kind == threeway.EditsStatus
			if undone {
				text += "; it is put back"
			}
			left.findings = append(left.findings, Finding{Path: j.path, Line: line, Key: j.key, Text: text, Undone: undone})
		}
		switch {
		case j.refused != nil:
			t.tellRefused(j, &left, file)
		case j.waits != "":
			left.refusals = append(left.refusals, Refusal{Key: j.key, Object: j.object(), File: file, Text: j.waits, Retry: true})
			left.retry = true
		case j.waiting != "":
			left.findings = append(left.findings, Finding{Path: j.path, Key: j.key, Text: j.waiting})
		}
		for _, a := range j.done {
			report.Applied = append(report.Applied, a.tell(j.key))
		}
		if left.empty() {
			delete(t.left, j.key)
			continue
		}
		t.left[j.key] = left
	}
	m.tellLeft(report)
}

// tellLeft reports what is open.
func (m *Mirror) tellLeft(report *Report) {
	t := m.two
	report.Conflicts, report.Refusals, report.DryRun = nil, nil, t.opts.DryRun
	for _, key := range sortedKeys(t.left) {
		if !t.judging[key] { // settled by somebody
			delete(t.left, key)
			continue
		}
		left := t.left[key]
		report.Conflicts = append(report.Conflicts, left.conflicts...)
		report.Refusals = append(report.Refusals, left.refusals...)
		report.Findings = append(report.Findings, left.findings...)
		report.Again = report.Again || left.retry
		report.tryAt(left.refusal.next)
	}
	for _, key := range sortedKeys(t.unmade) {
		e := t.unmade[key]
		if left := t.left[key]; t.isOpen(key) && len(left.findings)+len(left.refusals) == 0 {
			report.Findings = append(report.Findings, Finding{Path: PathOf(key), Key: key, Text: e.unmade()})
		}
	}
}

func (l leftOpen) empty() bool {
	return len(l.conflicts)+len(l.findings)+len(l.refusals) == 0
}

func (a applied) tell(key kube.Key) Applied {
	out := Applied{Key: key, Action: "configured", Displaced: a.displaced}
	switch a.action {
	case threeway.CreateObject:
		out.Action = "created"
	case threeway.DeleteObject:
		out.Action = "deleted"
	}
	if a.fields != nil {
		for path := range a.fields.Leaves().All() {
			out.Fields = append(out.Fields, path.String())
		}
	}
	for _, path := range a.returned {
		out.Notes = append(out.Notes, path.String()+" came back at its default")
	}
	for _, path := range a.altered {
		out.Notes = append(out.Notes, path.String()+" was changed by the server")
	}
	return out
}

// takenBackIn are the fields among conflicts that owners took back.
func takenBackIn(conflicts []threeway.Conflict) *fieldpath.Set {
	taken := fieldpath.NewSet()
	for _, c := range conflicts {
		if strings.HasPrefix(c.Reason, takenBack) {
			taken.Insert(c.Path.Copy())
		}
	}
	return taken
}
