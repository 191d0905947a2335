package main

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/sync"
)

// recorded returns what is told of, sorted: where and what.
func recorded(told func(*events), atOnce int) []string {
	recorder := record.NewFakeRecorder(100)
	recorder.IncludeObject = true
	told(&events{
		recorder: recorder, limit: flowcontrol.NewTokenBucketPassiveRateLimiter(0.001, atOnce),
		kind: func(gr schema.GroupResource) (schema.GroupVersionKind, bool) {
			return schema.GroupVersionKind{Group: gr.Group, Version: "v1", Kind: "Widget"}, gr.Resource == "widgets"
		},
	})
	close(recorder.Events)
	lines := slices.Collect(func(yield func(string) bool) {
		for line := range recorder.Events {
			if !yield(line) {
				return
			}
		}
	})
	slices.Sort(lines)
	return lines
}

// What is told stands where the users of the cluster look, on one line, and not too often.
func TestEvents(t *testing.T) {
	widget := func(namespace, name string) kube.Key {
		return kube.Key{Group: "shop.example.dev", Resource: "widgets", Namespace: namespace, Name: name}
	}
	held := sync.HeldSet{{Key: widget("shop", "a")}, {Key: widget("shop", "b")}, {Key: widget("bar", "a")}, {Key: widget("", "all")},
		{Key: kube.Key{Resource: "namespaces", Name: "bar"}}}
	conflict := sync.Conflict{Object: sync.Object{APIVersion: "shop.example.dev/v1", Kind: "Widget", Namespace: "shop", Name: "a"},
		File: "a.yaml", Field: ".spec.size", Reason: "both\nchanged"}
	for _, tt := range []struct {
		what   string
		told   func(*events)
		atOnce int
		want   []string
	}{
		{"held", func(e *events) { e.Held(held) }, 10, []string{
			"Warning GitDeletionsHeld held until approved: 1 deletion of widgets.shop.example.dev; see the agent's log, and: crmirror approve " + held.Digest() +
				" involvedObject{kind=CustomResourceDefinition,apiVersion=apiextensions.k8s.io/v1}",
			"Warning GitDeletionsHeld held until approved: 2 deletions of namespaces, widgets.shop.example.dev; see the agent's log, and: crmirror approve " + held.Digest() +
				" involvedObject{kind=Namespace,apiVersion=v1}",
			"Warning GitDeletionsHeld held until approved: 2 deletions of widgets.shop.example.dev; see the agent's log, and: crmirror approve " + held.Digest() +
				" involvedObject{kind=Namespace,apiVersion=v1}",
		}},
		{"quarantined and back", func(e *events) {
			e.Quarantined(widget("shop", "a"), "uid", errors.New("too\nlarge"))
			e.Recovered(widget("shop", "a"), "uid")
			e.Quarantined(kube.Key{Resource: "unknown", Name: "x"}, "uid", errors.New("no kind"))
		}, 10, []string{
			"Normal GitRecovered written to git again involvedObject{kind=Widget,apiVersion=shop.example.dev/v1}",
			"Warning GitQuarantined not written to git: too; large involvedObject{kind=Widget,apiVersion=shop.example.dev/v1}",
		}},
		{"a conflict and its end", func(e *events) { e.Conflict(conflict); e.Settled(conflict) }, 10, []string{
			"Normal GitConflictSettled .spec.size: no conflict with git any more: a.yaml involvedObject{kind=Widget,apiVersion=shop.example.dev/v1}",
			"Warning GitConflict .spec.size: both; changed, against a.yaml; see: crmirror conflicts involvedObject{kind=Widget,apiVersion=shop.example.dev/v1}",
		}},
		{"too many", func(e *events) {
			for range 10 {
				e.Recovered(widget("shop", "a"), "uid")
			}
		}, 1, []string{"Normal GitRecovered written to git again involvedObject{kind=Widget,apiVersion=shop.example.dev/v1}"}},
	} {
		if d := cmp.Diff(tt.want, recorded(tt.told, tt.atOnce)); d != "" {
			t.Errorf("%s (-want +got):\n%s", tt.what, d)
		}
	}
}
