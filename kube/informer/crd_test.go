package informer

import (
	"errors"
	"fmt"
	"net/url"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestReadVersion(t *testing.T) {
	type version struct {
		name            string
		served, storage bool
	}
	for _, test := range []struct {
		name     string
		versions []version
		want     string
	}{
		{"the storage version", []version{{"v1", true, false}, {"v1beta1", true, true}}, "v1beta1"},
		{"not served: the newest stable", []version{{"v1beta1", true, false}, {"v2", false, true}, {"v1", true, false}}, "v1"},
		{"not served: beta before alpha", []version{{"v2alpha1", true, false}, {"v1beta2", true, false}, {"v1", false, true}}, "v1beta2"},
		{"none served", []version{{"v1", false, true}}, ""},
		{"none", nil, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			var list []any
			for _, v := range test.versions {
				list = append(list, map[string]any{"name": v.name, "served": v.served, "storage": v.storage})
			}
			crd := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"versions": list}}}
			if got := defined(crd).version; got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestDefinedMalformed(t *testing.T) {
	for _, object := range []map[string]any{
		{}, {"spec": "text", "status": []any{}}, {"spec": map[string]any{"versions": []any{"v1", map[string]any{"served": "yes"}}}},
	} {
		if got := defined(&unstructured.Unstructured{Object: object}); got.established || got.version != "" {
			t.Errorf("%v is read as %+v", object, got)
		}
	}
}

func TestCause(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "widgets"}, "", errors.New("no"))
	refused := errors.New("dial tcp 10.0.0.1:443: connect: connection refused")
	for _, test := range []struct {
		name string
		err  error
		want string
	}{
		{"a status of the server", fmt.Errorf("failed to list x: %w", forbidden), forbidden.Error()},
		{"a connection", fmt.Errorf("x: %w", &url.Error{Op: "Get", URL: "https://10.0.0.1/apis?x=y", Err: refused}), refused.Error()},
		{"another", refused, refused.Error()},
	} {
		if got := cause(test.err).Error(); got != test.want {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
	}
	if a, b := signature(errors.New("read :4711: reset")), signature(errors.New("read :42: reset")); a != b {
		t.Errorf("errors that differ by a port have signatures %q and %q", a, b)
	}
}
