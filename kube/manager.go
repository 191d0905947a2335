package kube

import (
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Manager is a field manager: who changed an object, how and when. The zero Manager
// means that the server does not say.
type Manager struct {
	Name        string
	Operation   string // "Apply" or "Update"
	Subresource string // "" for the object itself
	Time        time.Time
}

// NewestManager returns who changed an object last, other than its status. Of entries with
// the same time, the last counts.
func NewestManager(obj *unstructured.Unstructured) Manager {
	var newest Manager
	meta, _ := obj.Object["metadata"].(map[string]any)
	entries, _ := meta["managedFields"].([]any)
	for _, e := range entries {
		entry, _ := e.(map[string]any)
		m := Manager{Name: text(entry, "manager"), Operation: text(entry, "operation"), Subresource: text(entry, "subresource")}
		if t, err := time.Parse(time.RFC3339, text(entry, "time")); err == nil {
			m.Time = t
		}
		if m.Name != "" && m.Subresource != "status" && !m.Time.Before(newest.Time) {
			newest = m
		}
	}
	return newest
}

func text(m map[string]any, key string) string {
	s, _ := m[key].(string)
	return s
}
