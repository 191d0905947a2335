package sync

import (
	"context"
	"errors"
	"maps"

	"github.com/go-git/go-git/v5/plumbing/filemode"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/crmirror/crmirror/gitstore"
	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/kube/informer"
)

// outside says which files were not looked at for lying outside every scope: of a
// kind that the cluster does not serve, or that no rule selects.
type outside struct {
	all   bool
	paths []string // besides those that were
}

// due tells whether there are any.
func (o *outside) due() bool { return o.all || len(o.paths) > 0 }

// more adds files that came to be others. Many are as dear to keep as all to look at.
func (o *outside) more(paths []string) {
	if o.paths = append(o.paths, paths...); o.all || len(o.paths) > 1000 {
		*o = outside{all: true}
	}
}

// sweep compares the listings that completed since the last cycle with the
// files in git: a file without an object becomes a candidate for deletion.
func (m *Mirror) sweep(ctx context.Context) error {
	maps.DeleteFunc(m.sweeps, func(scope informer.Scope, _ sweep) bool { return !m.inbox.known(scope) })
	if len(m.sweeps) == 0 && !m.look.due() {
		return nil
	}
	if err := m.compare(ctx, m.sweeps); err != nil {
		return err
	}
	for scope := range m.sweeps {
		m.swept[scope] = true
	}
	clear(m.sweeps)
	return nil
}

func (m *Mirror) compare(ctx context.Context, sweeps map[informer.Scope]sweep) error {
	served, complete := m.servedResources()
	lookOutside := m.look.due() && complete
	if len(sweeps) == 0 && !lookOutside {
		return nil // what was not looked at waits
	}
	var missing []Entry
	var unsure []string // cut paths: the content tells the key
	visit := func(key kube.Key) {
		if e, ok := m.missing(key, sweeps, served, lookOutside); ok {
			missing = append(missing, e)
		}
	}
	m.files(len(sweeps) > 0 || m.look.all, func(path string) {
		key, cut, err := KeyOf(path)
		switch {
		case err != nil:
		case cut:
			unsure = append(unsure, path)
		default:
			visit(key)
		}
	})
	for _, path := range unsure {
		key, err := m.keyAt(ctx, path)
		if errors.Is(err, errNotOurs) {
			line, text := lineOf(err)
			m.strange[path] = Finding{Path: path, Line: line, Text: text}
			continue
		}
		if err != nil {
			return err
		}
		visit(key)
	}
	for _, e := range missing {
		if _, newer := m.pending[e.Key]; !newer {
			m.pending[e.Key] = e
		}
	}
	if lookOutside {
		m.look = outside{}
	}
	return nil
}

// files calls fn for every file, or only for those that came to be others.
func (m *Mirror) files(all bool, fn func(path string)) {
	if all {
		m.repo.Walk("", func(path string, _ gitstore.Hash, _ filemode.FileMode) bool {
			fn(path)
			return true
		})
		return
	}
	for _, path := range m.look.paths {
		if _, exists := m.repo.Lookup(path); exists {
			fn(path)
		}
	}
}

// missing tells whether the file of key stands for an object that a complete
// listing did not show, and why that may be.
func (m *Mirror) missing(key kube.Key, sweeps map[informer.Scope]sweep, served map[schema.GroupResource]bool, lookOutside bool) (Entry, bool) {
	gr := key.GroupResource()
	s, listed := sweeps[informer.Scope{Resource: gr}]
	if !listed {
		s, listed = sweeps[informer.Scope{Resource: gr, Namespace: key.Namespace}]
	}
	e := Entry{Key: key, Op: Absent, Reason: ReasonDeleted, Epoch: s.epoch}
	switch {
	case listed && s.listing.Has(key):
		return e, false
	case listed && m.marker != nil && m.marker.Adopted != nil:
		// Before all else: in a cluster that was restored every CRD is younger than base.
		e.Reason = ReasonAdopted
	case listed && (s.listing.Reborn || m.rebornWhileDown(key)):
		e.Reason = ReasonKindGone
	case listed:
	case lookOutside && !served[gr]:
		// A kind that the cluster does not serve, or that no rule selects;
		// the judgement of the candidate tells which.
		e.Reason = ReasonKindGone
	default:
		return e, false
	}
	return e, true
}

// rebornWhileDown tells whether the CRD is younger than what an earlier process
// agreed on with the cluster. The files that it left behind are of a CRD before
// it then, as after a reinstall: that its objects are gone proves nothing.
func (m *Mirror) rebornWhileDown(key kube.Key) bool {
	return !m.agreed.IsZero() && !m.isSettled(key) && m.cluster.Created(key.GroupResource()).After(m.agreed)
}

// servedResources returns the resources that informers watch, and whether all
// that there are to watch are known.
func (m *Mirror) servedResources() (served map[schema.GroupResource]bool, complete bool) {
	served = map[schema.GroupResource]bool{}
	discovered := false
	for _, s := range m.cluster.Status() {
		if s.Scope.Resource == crdResource && s.Phase == informer.PhaseSynced {
			discovered = true
		}
		// A resource that a rule names and the server does not know has no version.
		unknown := s.Phase == informer.PhaseFailing && s.Version == ""
		if s.Phase != informer.PhaseGone && !unknown {
			served[s.Scope.Resource] = true
		}
	}
	return served, discovered && m.cluster.Synced()
}
