package sync

import (
	"context"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/crmirror/crmirror/gitstore"
	"github.com/crmirror/crmirror/kube"
)

// asked is a field of an object's file, of which is to be known which commit gave it the
// value that it has at the branch's head.
type asked struct {
	file  string
	field fieldpath.Path // empty: the object
	has   fieldValue
}

// since finds the commits, in one walk. Where the history here does not tell, it is the
// newest commit that changed the file, or none.
func (m *Mirror) since(ctx context.Context, questions []asked) []gitstore.Change {
	out := make([]gitstore.Change, len(questions))
	open, ends := map[string][]int{}, map[string]bool{}
	var paths []string
	for i, q := range questions {
		if open[q.file] == nil {
			paths = append(paths, q.file)
		}
		open[q.file] = append(open[q.file], i)
	}
	m.repo.FileChanges(paths, func(path string, c gitstore.Change, was, _ gitstore.Hash) bool {
		before, known := m.contentThen(ctx, was)
		var left []int
		for _, i := range open[path] {
			q := &questions[i]
			if !ends[path] {
				out[i] = c // the newest at all, in case
			}
			switch {
			case known && !valueOf(before, q.field).equals(q.has):
				out[i] = c
			case known:
				left = append(left, i)
			}
		}
		open[path], ends[path] = left, true
		return len(left) == 0
	})
	return out
}

// contentThen is what a file held; nil where it was none of an object. It is not known of
// what the clone lacks.
func (m *Mirror) contentThen(ctx context.Context, blob gitstore.Hash) (map[string]any, bool) {
	if blob.IsZero() {
		return nil, true
	}
	if !m.repo.Has(blob) {
		return nil, false
	}
	content, err := m.repo.Read(ctx, blob)
	if err != nil {
		return nil, false
	}
	obj, err := kube.Decode(content)
	if err != nil {
		return nil, true
	}
	return obj.Object, true
}

// askSince asks for a field of a judged object's file; an empty path is the object.
func askSince(j *judgement, path fieldpath.Path) asked {
	q := asked{file: j.path, field: path, has: valueOf(j.git, path)}
	if len(path) == 0 {
		q.has = fieldValue{value: j.git, present: j.git != nil}
	}
	return q
}

// conflictSince finds which commits gave the fields of conflicts the values that git has, in
// the order of the conflicts.
func (m *Mirror) conflictSince(ctx context.Context, judged []*judgement) []gitstore.Change {
	var questions []asked
	for _, j := range judged {
		for _, c := range j.decision.Conflicts {
			questions = append(questions, askSince(j, c.Path))
		}
	}
	return m.since(ctx, questions)
}
