package kube

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestSmoke(t *testing.T) {
	obj := &unstructured.Unstructured{}
	if err := obj.UnmarshalJSON([]byte(`{"apiVersion":"x.io/v1","kind":"Service","metadata":{"name":"a","uid":"1","annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{}"}},"data":{"a":1,"b":9007199254740993},"status":{}}`)); err != nil {
		t.Fatal(err)
	}
	out, err := Encode(obj, nil)
	t.Logf("%s %v", out, err)
	back, err := Decode(out)
	t.Logf("%v %v", back, err)
}
