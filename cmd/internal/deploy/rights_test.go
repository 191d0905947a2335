package deploy

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// right is one thing that may be done: a verb on a resource (or on the objects of
// that name), in a namespace, or in all of them if it is "".
type right struct{ namespace, group, resource, name, verb string }

// rightsOf lists what roles grant.
func rightsOf(t *testing.T, objects []*unstructured.Unstructured) map[right]bool {
	t.Helper()
	out := map[right]bool{}
	for _, object := range objects {
		if kind := object.GetKind(); kind != "Role" && kind != "ClusterRole" {
			continue
		}
		for _, rule := range rulesOf(t, object) {
			names := rule.ResourceNames
			if names == nil {
				names = []string{""}
			}
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					for _, name := range names {
						for _, verb := range rule.Verbs {
							out[right{object.GetNamespace(), group, resource, name, verb}] = true
						}
					}
				}
			}
		}
	}
	return out
}

func rulesOf(t *testing.T, role *unstructured.Unstructured) []rbacv1.PolicyRule {
	t.Helper()
	var typed rbacv1.ClusterRole // a Role has its rules at the same place
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(role.Object, &typed); err != nil {
		t.Fatal(err)
	}
	return typed.Rules
}

// difference compares sets of rights; "" means equal.
func difference(t *testing.T, want, got map[right]bool) string {
	t.Helper()
	return cmp.Diff(want, got, cmp.AllowUnexported(right{}))
}

// plain makes numbers and types of a rendered object what JSON makes of them.
func plain(t *testing.T, object map[string]any) map[string]any {
	t.Helper()
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	return out
}
