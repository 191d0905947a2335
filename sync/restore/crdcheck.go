package restore

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
)

// crdProblem says why the cluster's CRD is not to be made as git has it; "" for what is no CRD.
func (m *maker) crdProblem(gr schema.GroupResource, item Item) string {
	if gr != crdResource {
		return ""
	}
	of := schema.ParseGroupResource(item.Key.Name)
	git, live := m.defined[of], m.definitions[of]
	if git == nil || live == nil {
		return ""
	}
	return newer(git, live)
}

// newer says in what the cluster's CRD is ahead of git's, or cannot become it.
//
// Invariant: a CRD is never taken back to fewer versions than the cluster's has, nor to an older
// storage version, and no version goes in which something may be stored (TestNewerCRD).
func newer(git, live *definition) string {
	has := func(name string) bool {
		for _, v := range git.Spec.Versions {
			if v.Name == name {
				return true
			}
		}
		return false
	}
	var stored, more []string
	for _, name := range live.Status.StoredVersions {
		if !has(name) {
			stored = append(stored, name)
		}
	}
	for _, v := range live.Spec.Versions {
		if !has(v.Name) && !slices.Contains(stored, v.Name) {
			more = append(more, v.Name)
		}
	}
	switch {
	case git.Spec.Scope != live.Spec.Scope:
		return fmt.Sprintf("the cluster's CRD has scope %s, git's %s, which cannot be changed; it is left as it is", live.Spec.Scope, git.Spec.Scope)
	case len(stored) > 0:
		return fmt.Sprintf("the cluster stores objects at %s, which git's CRD has not; it is left as it is", strings.Join(stored, ", "))
	case len(more) > 0:
		return fmt.Sprintf("the cluster's CRD is newer: it has %s, which git's has not; it is left as it is", strings.Join(more, ", "))
	case version.CompareKubeAwareVersionStrings(storedAt(live), storedAt(git)) > 0:
		return fmt.Sprintf("the cluster's CRD is newer: it stores at %s, git's at %s; it is left as it is", storedAt(live), storedAt(git))
	}
	return ""
}
