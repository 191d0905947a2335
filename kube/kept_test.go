package kube_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/crmirror/crmirror/kube"
)

// TestFatesAreWhatEncodeDoes holds what is told of an object's fields against what Encode writes of it.
func TestFatesAreWhatEncodeDoes(t *testing.T) {
	live := `apiVersion: x.dev/v1
kind: Widget
metadata:
  name: w
  namespace: shop
  uid: "1"
  resourceVersion: "7"
  annotations:
    kubectl.kubernetes.io/last-applied-configuration: "{}"
    x.io/seen: now
  ownerReferences:
  - {apiVersion: v1, kind: ConfigMap, name: c, uid: "2"}
spec:
  replicas: 3
  size: 2
  users:
  - {name: a, password: p, token: t}
  - {name: b, password: q}
status: {ready: true, secret: s}
`
	obj, err := kube.Decode([]byte(live))
	if err != nil {
		t.Fatal(err)
	}
	path := func(text string) kube.FieldPath {
		p, err := kube.ParseFieldPath(text)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	shape := &kube.Shape{
		RedactKey: []byte("0123456789abcdef"),
		Drop:      []kube.FieldPath{path(".spec.replicas"), path(`.metadata.annotations["x.io/seen"]`), path(".status.secret"), path(".spec.users[*].token")},
		Redact:    []kube.FieldPath{path(".spec.users[*].password"), path(".spec.users[*].token")},
	}
	want := []kube.FieldFate{
		{Field: ".apiVersion", Kept: kube.KeptStored, Rule: -1},
		{Field: ".kind", Kept: kube.KeptStored, Rule: -1},
		{Field: ".metadata.annotations", Kept: kube.KeptStored, Rule: -1},
		{Field: `.metadata.annotations["kubectl.kubernetes.io/last-applied-configuration"]`, Kept: kube.KeptRepeated, Rule: -1},
		{Field: `.metadata.annotations["x.io/seen"]`, Kept: kube.KeptDropped, Rule: 1},
		{Field: ".metadata.name", Kept: kube.KeptStored, Rule: -1},
		{Field: ".metadata.namespace", Kept: kube.KeptStored, Rule: -1},
		{Field: ".metadata.ownerReferences", Kept: kube.KeptStored, Rule: -1},
		{Field: ".metadata.ownerReferences[0].uid", Kept: kube.KeptOwnerUID, Rule: -1},
		{Field: ".metadata.resourceVersion", Kept: kube.KeptServerSet, Rule: -1},
		{Field: ".metadata.uid", Kept: kube.KeptServerSet, Rule: -1},
		{Field: ".spec", Kept: kube.KeptStored, Rule: -1},
		{Field: ".spec.replicas", Kept: kube.KeptDropped, Rule: 0},
		{Field: ".spec.users[0].password", Kept: kube.KeptRedacted, Rule: 0},
		{Field: ".spec.users[0].token", Kept: kube.KeptDropped, Rule: 3},
		{Field: ".spec.users[1].password", Kept: kube.KeptRedacted, Rule: 0},
		{Field: ".status", Kept: kube.KeptNoStatus, Rule: -1},
	}
	if diff := cmp.Diff(want, shape.Fates(obj.Object)); diff != "" {
		t.Errorf("fates (-want +got):\n%s", diff)
	}

	stored, err := kube.Encode(obj, shape)
	if err != nil {
		t.Fatal(err)
	}
	git, err := kube.Decode(stored)
	if err != nil {
		t.Fatal(err)
	}
	users, _ := git.Object["spec"].(map[string]any)["users"].([]any)
	_, token := users[0].(map[string]any)["token"]
	_, status := git.Object["status"]
	if token || status || git.GetAnnotations() != nil || !kube.ContainsRedaction(users) {
		t.Errorf("Encode does otherwise than is told:\n%s", stored)
	}
}
