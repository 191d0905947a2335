package informer_test

import (
	"strings"
	"testing"

	"github.com/crmirror/crmirror/kube/informer"
	"github.com/crmirror/crmirror/kube/kubetest"
)

func TestObjectsComeAndGo(t *testing.T) {
	server := kubetest.Shared(t)
	w := connect(t, server.Config).install("objects.test.dev")
	ns := server.Namespace(t)
	w.create(ns, "first")

	told := newRecorder()
	fleet := run(t, options(server.Config, selecting(t, w.name()), told))
	scope := informer.Scope{Resource: w.resource()}
	if got, want := told.all(w.name()), []string{
		"listing " + scope.String(), "changed " + w.key(ns, "first").String(), "listed " + scope.String(),
	}; strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("first listing: got %q, want %q", got, want)
	}
	listing := told.listing(scope)
	if !listing.Has(w.key(ns, "first")) || listing.Has(w.key(ns, "second")) || listing.Count != 1 {
		t.Errorf("listing has not just the one object: %+v", listing)
	}

	mark := told.mark()
	w.create(ns, "second")
	told.wait(t, mark, "changed "+w.key(ns, "second").String())
	state := told.state(w.key(ns, "second"))
	if state.UID == "" || state.ResourceVersion == "" || state.Manager.Name == "" || !strings.Contains(string(state.Content), "size: 1") {
		t.Errorf("state is not complete: %+v\n%s", state, state.Content)
	}
	w.label(ns, "second", "a=b")
	told.wait(t, mark, "changed "+w.key(ns, "second").String())
	w.delete(ns, "second")
	told.wait(t, mark, "deleted "+w.key(ns, "second").String())
	if kind, namespaced, ok := fleet.Kind(w.resource()); kind != "Widget" || !namespaced || !ok {
		t.Errorf("Kind = %q, %v, %v", kind, namespaced, ok)
	}
}
