package sync

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/crmirror/crmirror/gitstore"
	"github.com/crmirror/crmirror/kube"
)

// Unsettled is an object, or a conflict of it, that could not be settled, and why.
type Unsettled struct {
	Key   kube.Key
	Field string // "" for the object
	Err   error
}

// oneObject refuses keys of several objects where one was named: what a person did not think of
// is not settled.
func (r *Resolution) oneObject(keys []kube.Key) error {
	if r.Name == "" || len(keys) < 2 {
		return nil
	}
	var names []string
	for _, key := range keys {
		names = append(names, key.String())
	}
	return fmt.Errorf("resolve %s: several objects of that name have conflicts, %s; say which, with -n NAMESPACE", r.Name, strings.Join(names, ", "))
}

// settling is one attempt to settle what a Resolution asks for.
type settling struct {
	Resolution
	settled []Conflict
	left    []Unsettled
	commit  gitstore.Commit
	changes []Change
}

// skip notes what cannot be settled; of a single object that is an error.
func (s *settling) skip(key kube.Key, field string, err error) error {
	if s.Name != "" {
		return fmt.Errorf("resolve %s: %s: %w", key, cmp.Or(field, "the object"), err)
	}
	s.left = append(s.left, Unsettled{key, field, err})
	return nil
}
