package main_test

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// as returns the scene's user as a service account that may do what the rules of a ClusterRole say, and nothing else.
func (s *scene) as(name, rules string) *user {
	s.t.Helper()
	account := "system:serviceaccount:" + s.namespace + ":" + name
	_, kubeconfig, err := s.cluster.User(account, "system:serviceaccounts", "system:serviceaccounts:"+s.namespace)
	if err != nil {
		s.t.Fatal(err)
	}
	role := s.namespace + "-" + name
	s.grant("clusterroles", fmt.Sprintf("apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: %s}\nrules:\n%s", role, rules))
	s.grant("clusterrolebindings", fmt.Sprintf("apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {name: %s}\n"+
		"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: %s}\n"+
		"subjects: [{kind: User, apiGroup: rbac.authorization.k8s.io, name: %q}]\n", role, role, account))
	other := *s.u
	other.env = []string{"KUBECONFIG=" + kubeconfig}
	return &other
}

func (s *scene) grant(resource, text string) {
	s.t.Helper()
	s.create(schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: resource}, "", text)
}

// Who may do a part of it does that part: what is not allowed is told before anything is written, all at once.
func TestRestoreAllowed(t *testing.T) {
	t.Parallel()
	s := newScene(t, "allowed")
	s.kind("Widget", "v1")
	s.kind("Gadget", "v1")
	for _, name := range []string{"a", "b"} {
		s.object(s.namespace, "Widget", name, "spec:\n  size: 1\n")
		s.object(s.namespace, "Gadget", name, "spec:\n  size: 1\n")
	}
	s.commit()
	admin := s.u

	s.u = s.as("reader", "- {apiGroups: ['*'], resources: ['*'], verbs: [get, list, watch]}\n")
	for _, args := range [][]string{{"--dry-run"}, nil} {
		r := s.u.run(append([]string{"restore", "--repo", s.repo}, args...)...)
		if r.code != 3 {
			t.Errorf("got %v\nwant exit code 3", r)
		}
		wantTold(t, r.stdout, "you may not create customresourcedefinitions.apiextensions.k8s.io (keeps back 2 objects)",
			"you may not create namespaces (keeps back 1 object)",
			"you may not create widgets.allowed.example.dev in namespace allowed (keeps back 2 objects)",
			"you may not create gadgets.allowed.example.dev in namespace allowed (keeps back 2 objects)")
	}
	s.restore(3).wantTotals(t, map[string]int{"blocked": 7})

	most := "- {apiGroups: [''], resources: [namespaces], verbs: [get, list, create]}\n" +
		"- {apiGroups: [apiextensions.k8s.io], resources: [customresourcedefinitions], verbs: [get, list, watch, create]}\n" +
		"- {apiGroups: [allowed.example.dev], resources: ['*'], verbs: [get, list]}\n" +
		"- {apiGroups: [allowed.example.dev], resources: [widgets], verbs: [create]}\n"
	s.u = s.as("most", most)
	r := s.u.run("restore", "--repo", s.repo, "--dry-run")
	wantTold(t, r.stdout, "gadgets.allowed.example.dev: you may not create gadgets.allowed.example.dev in namespace allowed (keeps back 2 objects)",
		"5 objects would be written")
	report := s.restore(3)
	report.wantTotals(t, map[string]int{"created": 5, "blocked": 2})
	if report.Verification == nil || report.Verification.Equal != 5 || report.Complete {
		t.Errorf("got %+v, want 5 objects proven, and not complete", report.Verification)
	}
	s.wantMissing(s.namespace, "Gadget", "a")

	s.u = admin
	s.restore(0).wantTotals(t, map[string]int{"created": 2, "unchanged": 5})
}
