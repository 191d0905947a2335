package informer_test

import (
	"errors"
	"testing"

	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/kube/informer"
	"github.com/crmirror/crmirror/kube/kubetest"
)

func TestUnselectedByUpdate(t *testing.T) {
	server := kubetest.Shared(t)
	w := connect(t, server.Config).install("unselected.test.dev")
	w.create("default", "in", "tier=a")
	w.create("default", "out", "tier=c")
	told := newRecorder()
	rules := compile(t, kube.Selection{
		Select:  []kube.Rule{{Resources: []string{w.name()}}},
		Exclude: []kube.Rule{{Resources: []string{w.name()}, LabelSelector: "tier notin (a,b)"}},
	})
	fleet := run(t, options(server.Config, rules, told))
	told.wait(t, 0, "unselected "+w.key("default", "out").String())
	listing := told.listing(informer.Scope{Resource: w.resource()})
	if listing.Filtered || listing.Has(w.key("default", "out")) {
		t.Errorf("listing has the object that is not selected, or claims a filter: %+v", listing)
	}

	w.label("default", "in", "tier=c")
	told.wait(t, 0, "unselected "+w.key("default", "in").String())
	if listing.Has(w.key("default", "in")) {
		t.Error("an object that left the selection is still listed")
	}
	if _, err := fleet.Get(t.Context(), w.key("default", "in")); !errors.Is(err, informer.ErrUnselected) {
		t.Errorf("Get: got %v, want %v", err, informer.ErrUnselected)
	}
	mark := told.mark()
	w.label("default", "in", "tier=b")
	told.wait(t, mark, "changed "+w.key("default", "in").String())
}

func TestLabelSelectorOnServer(t *testing.T) {
	server := kubetest.Shared(t)
	w := connect(t, server.Config).install("labels.test.dev")
	w.create("default", "stays", "mirror=yes")
	w.create("default", "loses", "mirror=yes")
	w.create("default", "dies", "mirror=yes")
	w.create("default", "never", "mirror=no")
	told := newRecorder()
	rules := compile(t, kube.Selection{Select: []kube.Rule{{Resources: []string{w.name()}, LabelSelector: "mirror=yes"}}})
	fleet := run(t, options(server.Config, rules, told))
	if listing := told.listing(informer.Scope{Resource: w.resource()}); !listing.Filtered || listing.Count != 3 {
		t.Errorf("got listing %+v, want 3 objects, filtered", listing)
	}
	if got := told.all(w.key("default", "never").String()); len(got) > 0 {
		t.Errorf("the server was not given the selector: %q", got)
	}

	w.label("default", "loses", "mirror=no")
	told.wait(t, 0, "unselected "+w.key("default", "loses").String())
	w.delete("default", "dies")
	told.wait(t, 0, "deleted "+w.key("default", "dies").String())
	if got := told.all("deleted "); len(got) != 1 {
		t.Errorf("an object without its label is told as deleted: %q", got)
	}

	for name, want := range map[string]error{"dies": informer.ErrNotFound, "never": informer.ErrUnselected, "stays": nil} {
		if _, err := fleet.Get(t.Context(), w.key("default", name)); !errors.Is(err, want) {
			t.Errorf("Get %s: got %v, want %v", name, err, want)
		}
	}
}
