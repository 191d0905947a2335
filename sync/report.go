package sync

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/crmirror/crmirror/gitstore"
	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/kube/informer"
)

// Finding is something in git or in the cluster that a person should look at.
// It stops nothing else.
type Finding struct {
	Path string // of the file, below the repository's path; "" when it is about an object only
	File string // the same, from the repository's root
	Line int    // in it, from 1; 0 when it is about the file as a whole
	Key  kube.Key
	Text string
	// Undone says that the next commit puts it right, or did.
	Undone bool

	blob       gitstore.Hash // that it was found in
	unreadable bool          // it may be an object's file
	holds      kube.Key      // the object that it holds, where it is not applied from; "" for a namespace is any
}

// At names the place: file and line, or what stands for them.
func (f *Finding) At() string { return At(cmp.Or(f.File, f.Path), f.Line) }

// At writes a line of a file as editors and terminals understand it; line 0 is the whole file.
func At(file string, line int) string {
	if line == 0 {
		return file
	}
	return fmt.Sprintf("%s:%d", file, line)
}

// Report tells what a cycle did, and what of the whole needs a person. It holds
// no contents of objects.
type Report struct {
	Commit string // the last commit made; "" when nothing changed
	Pushed bool   // it was acknowledged by the remote

	Held      HeldSet
	Findings  []Finding
	Refused   map[kube.Key]error       // quarantined objects
	Failing   map[informer.Scope]error // resources that cannot be read
	Postponed map[kube.Key]error       // deletions that could not be proven now
	Orphans   []kube.Key               // files that no rule selects any more
	Left      []gitstore.Left          // files of a person's worktree that were not touched
	Waiting   int                      // objects whose push is not acknowledged
	Lost      int                      // tries of a cycle that finished in which another writer was faster

	// Of mode two-way.
	DryRun    bool // nothing was written: Applied and the changes are what would be
	Applied   []Applied
	Conflicts []Conflict
	Refusals  []Refusal

	Again bool      // something is left to be tried again soon
	Next  time.Time // when the first refused change is to be tried again; zero when none was refused

	changes map[schema.GroupResource]*ResourceReport
	objects map[schema.GroupResource]counts
}

// counts are what the informers see of a resource.
type counts struct{ selected, skipped int }

// ResourceReport sums up one resource.
type ResourceReport struct {
	Resource string `json:"resource"`
	Objects  int    `json:"objects"` // in the cluster and selected
	Created  int    `json:"created"`
	Changed  int    `json:"changed"`
	Deleted  int    `json:"deleted"`
	Skipped  int    `json:"skipped"` // in the cluster and not selected
	Refused  int    `json:"refused"` // selected, but without an encoding
	Failing  string `json:"failing,omitempty"`
}

func newReport() *Report {
	return &Report{changes: map[schema.GroupResource]*ResourceReport{}, objects: map[schema.GroupResource]counts{}}
}

// reset forgets what an attempt did that came to nothing.
func (r *Report) reset() {
	r.Commit = ""
	r.Findings = nil
	r.Next = time.Time{}
	clear(r.changes)
}

// tryAt lets a change be tried again at a time; the zero time is none.
func (r *Report) tryAt(next time.Time) {
	if !next.IsZero() && (r.Next.IsZero() || next.Before(r.Next)) {
		r.Next = next
	}
}

// add counts the changes of one commit.
func (r *Report) add(commit string, changes []Change) {
	r.Commit = commit
	for _, c := range changes {
		gr := c.Key.GroupResource()
		if r.changes[gr] == nil {
			r.changes[gr] = &ResourceReport{}
		}
		switch c.Op {
		case Created:
			r.changes[gr].Created++
		case Deleted, Unselected:
			r.changes[gr].Deleted++
		default:
			r.changes[gr].Changed++
		}
	}
}

// Objects is the number of objects in the cluster that are mirrored.
func (r *Report) Objects() int {
	total := 0
	for _, n := range r.objects {
		total += n.selected
	}
	return total
}

// Created is the number of files created.
func (r *Report) Created() int { return r.sum(func(x ResourceReport) int { return x.Created }) }

// Changed is the number of files changed.
func (r *Report) Changed() int { return r.sum(func(x ResourceReport) int { return x.Changed }) }

// Deleted is the number of files deleted.
func (r *Report) Deleted() int { return r.sum(func(x ResourceReport) int { return x.Deleted }) }

func (r *Report) sum(of func(ResourceReport) int) int {
	total := 0
	for _, x := range r.changes {
		total += of(*x)
	}
	return total
}

// Clean tells whether nothing is left that a person should look at: everything
// selected was read and is in git. It decides between the exit codes 0 and 3.
func (r *Report) Clean() bool {
	return len(r.Held) == 0 && len(r.Findings) == 0 && len(r.Refused) == 0 &&
		len(r.Failing) == 0 && len(r.Postponed) == 0 && len(r.Left) == 0 &&
		len(r.Conflicts) == 0 && len(r.Refusals) == 0 &&
		(!r.DryRun || len(r.Applied)+r.Created()+r.Changed()+r.Deleted() == 0)
}

// Resources sums up by resource, sorted by name.
func (r *Report) Resources() []ResourceReport {
	all := map[schema.GroupResource]*ResourceReport{}
	at := func(gr schema.GroupResource) *ResourceReport {
		if all[gr] == nil {
			all[gr] = &ResourceReport{Resource: gr.String()}
		}
		return all[gr]
	}
	for gr, n := range r.objects {
		x := at(gr)
		x.Objects, x.Skipped = n.selected, n.skipped
	}
	for gr, c := range r.changes {
		x := at(gr)
		x.Created, x.Changed, x.Deleted = c.Created, c.Changed, c.Deleted
	}
	for key := range r.Refused {
		at(key.GroupResource()).Refused++
	}
	for scope, err := range r.Failing {
		at(scope.Resource).Failing = err.Error()
	}
	return slices.SortedFunc(func(yield func(ResourceReport) bool) {
		for x := range maps.Values(all) {
			if !yield(*x) {
				return
			}
		}
	}, func(a, b ResourceReport) int { return cmp.Compare(a.Resource, b.Resource) })
}
