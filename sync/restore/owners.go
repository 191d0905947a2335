package restore

import (
	"context"
	"errors"
	"fmt"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/kube/apply"
)

// ownerID is what an owner is called in any version and cluster, by those who lie where it lies.
type ownerID struct{ group, kind, name string }

func idOf(reference map[string]any) ownerID {
	text := func(key string) string { s, _ := reference[key].(string); return s }
	return ownerID{schema.FromAPIVersionAndKind(text("apiVersion"), "").Group, text("kind"), text("name")}
}

// owners returns the uids of an object's owners in the cluster; those of dropped ones are missing.
//
// Invariant: no uid is written that is not of an object which was there, and not being deleted, when this
// run read or wrote it: with another one, garbage collection would delete what it stands in (TestOwners,
// TestOwnersGo).
func (x *executor) owners(ctx context.Context, a *Action, obj map[string]any) (map[ownerID]string, error) {
	references := references(obj)
	if len(references) != len(a.Owners) {
		return nil, fmt.Errorf("the plan has %d owners of it, and git %d; make a new plan", len(a.Owners), len(references))
	}
	uids := map[ownerID]string{}
	for i, reference := range references {
		if a.Owners[i].Dropped {
			continue
		}
		uid, err := x.ownerUID(ctx, a, a.Owners[i].Key)
		if err != nil {
			return nil, err
		}
		uids[idOf(reference)] = uid
	}
	return uids, nil
}

// ownerUID returns the uid of an owner that this run wrote, or else reads it, once.
func (x *executor) ownerUID(ctx context.Context, a *Action, owner kube.Key) (string, error) {
	if uid := x.uid(owner); uid != "" {
		return uid, nil
	}
	planned := x.ownerAsPlanned(a, owner)
	if _, ours := x.tasks[owner]; ours && planned == "" {
		return "", blocked("its owner %s is not there; see there, and run again", owner)
	}
	kind, served := x.served.Resource(owner.GroupResource())
	if !served {
		return "", blocked("its owner %s is of a kind that is not served; restore that kind too", owner)
	}
	live, err := x.target.Get(ctx, kind.Preferred(), owner.Namespace, owner.Name)
	switch {
	case errors.Is(err, apply.ErrNotFound):
		return "", blocked("its owner %s is not there; restore it too", owner)
	case err != nil:
		return "", x.judge(&job{action: a}, err)
	case live.GetDeletionTimestamp() != nil:
		return "", blocked("%s", ownerGoes(owner))
	case planned != "" && string(live.GetUID()) != planned:
		return "", blocked("its owner %s was deleted and made again since the plan was made; run again", owner)
	}
	x.is(owner, string(live.GetUID()))
	return string(live.GetUID()), nil
}

// ownerAsPlanned returns the uid that an object's owner had when the plan was made; "" if it was not there.
func (x *executor) ownerAsPlanned(a *Action, owner kube.Key) string {
	if i, ok := x.tasks[owner]; ok {
		return x.plan.Actions[i].UID
	}
	for _, o := range a.awaits() {
		if o.Key == owner {
			return o.UID
		}
	}
	return ""
}

func references(obj map[string]any) []map[string]any {
	metadata, _ := obj["metadata"].(map[string]any)
	list, _ := metadata["ownerReferences"].([]any)
	var out []map[string]any
	for _, item := range list {
		reference, _ := item.(map[string]any)
		out = append(out, reference)
	}
	return out
}

// setOwners gives the references in an object that lack a uid those of the live object, or else those of
// the owners, and takes out the others. The object's metadata is replaced.
func setOwners(obj map[string]any, live []metav1.OwnerReference, owners map[ownerID]string) {
	list := references(obj)
	if len(list) == 0 {
		return
	}
	for _, r := range live {
		owners[ownerID{schema.FromAPIVersionAndKind(r.APIVersion, "").Group, r.Kind, r.Name}] = string(r.UID)
	}
	var out []map[string]any
	for _, reference := range list {
		uid, has := reference["uid"]
		if !has {
			if uid, has = owners[idOf(reference)]; !has {
				continue
			}
		}
		reference = maps.Clone(reference)
		reference["uid"] = uid
		out = append(out, reference)
	}
	setReferences(obj, out)
}

// setReferences replaces the references in an object, and its metadata with them.
func setReferences(obj map[string]any, references []map[string]any) {
	list := make([]any, len(references))
	for i, reference := range references {
		list[i] = reference
	}
	metadata := maps.Clone(obj["metadata"].(map[string]any))
	if metadata["ownerReferences"] = list; len(list) == 0 {
		delete(metadata, "ownerReferences")
	}
	obj["metadata"] = metadata
}
