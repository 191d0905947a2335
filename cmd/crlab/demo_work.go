package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/sync"
)

// live is one object in the cluster and how to reach it.
type live struct {
	key      kube.Key
	resource schema.GroupVersionResource
	object   *unstructured.Unstructured
}

// objects lists every custom resource, the CRDs and the Namespaces that hold
// any of them, with plain LISTs: nothing of it goes through the agent.
func (d *demo) objects(ctx context.Context) ([]live, error) {
	crds := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	definitions, err := d.list(ctx, crds)
	if err != nil {
		return nil, err
	}
	all := definitions
	inUse := map[string]bool{}
	for _, crd := range definitions {
		objects, err := d.list(ctx, storageVersion(crd.object))
		if err != nil {
			return nil, err
		}
		for _, o := range objects {
			inUse[o.key.Namespace] = true
		}
		all = append(all, objects...)
	}
	namespaces, err := d.list(ctx, schema.GroupVersionResource{Version: "v1", Resource: "namespaces"})
	if err != nil {
		return nil, err
	}
	for _, ns := range namespaces {
		if inUse[ns.key.Name] {
			all = append(all, ns)
		}
	}
	return all, nil
}

func (d *demo) list(ctx context.Context, resource schema.GroupVersionResource) ([]live, error) {
	list, err := d.client.Resource(resource).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", resource.GroupResource(), err)
	}
	var out []live
	for i := range list.Items {
		o := &list.Items[i]
		key := kube.Key{Group: resource.Group, Resource: resource.Resource, Namespace: o.GetNamespace(), Name: o.GetName()}
		out = append(out, live{key: key, resource: resource, object: o})
	}
	return out, nil
}

// storageVersion is the version that a CRD stores, which is the one mirrored if
// it is served; in the demo's corpus it always is.
func storageVersion(crd *unstructured.Unstructured) schema.GroupVersionResource {
	group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")
	plural, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "plural")
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	for _, v := range versions {
		if v, ok := v.(map[string]any); ok && v["storage"] == true {
			name, _ := v["name"].(string)
			return schema.GroupVersionResource{Group: group, Version: name, Resource: plural}
		}
	}
	return schema.GroupVersionResource{Group: group, Resource: plural}
}

// work changes, creates and deletes objects, each waited for, and returns the
// commits that came of it.
func (d *demo) work(ctx context.Context, head string) ([]string, error) {
	all, err := d.objects(ctx)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(l live) bool { return l.key.Namespace == "" })
	if len(all) < 200 {
		return nil, fmt.Errorf("the cluster has only %d namespaced custom resources", len(all))
	}
	var commits []string
	used := map[kube.Key]bool{}
	for _, step := range []func(context.Context, live) (string, error){d.raise, d.label, d.copyOf, d.remove} {
		said := ""
		for _, l := range all {
			if used[l.key] {
				continue
			}
			if said, err = step(ctx, l); err == nil && said != "" {
				used[l.key] = true
				break
			}
		}
		if said == "" {
			return nil, fmt.Errorf("no object of the corpus would do; the last answer: %w", err)
		}
		d.say("   %s", said)
		if head, err = d.nextCommit(ctx, head); err != nil {
			return nil, err
		}
		commits = append(commits, head)
	}
	return commits, nil
}

// raise adds one to a number in an object's spec.
func (d *demo) raise(ctx context.Context, l live) (string, error) {
	spec, _, _ := unstructured.NestedMap(l.object.Object, "spec")
	for _, field := range slices.Sorted(maps.Keys(spec)) {
		n, ok := spec[field].(int64)
		if !ok {
			continue
		}
		changed := l.object.DeepCopy()
		if err := unstructured.SetNestedField(changed.Object, n+1, "spec", field); err != nil {
			return "", err
		}
		_, err := d.client.Resource(l.resource).Namespace(l.key.Namespace).
			Update(ctx, changed, metav1.UpdateOptions{FieldManager: "ada"})
		return fmt.Sprintf("Ada sets spec.%s of %s from %d to %d", field, l.key, n, n+1), err
	}
	return "", errors.New("no number in any spec")
}

func (d *demo) label(ctx context.Context, l live) (string, error) {
	changed := l.object.DeepCopy()
	labels := changed.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels["team"] = "platform"
	changed.SetLabels(labels)
	_, err := d.client.Resource(l.resource).Namespace(l.key.Namespace).
		Update(ctx, changed, metav1.UpdateOptions{FieldManager: "grace"})
	return fmt.Sprintf("Grace labels %s with team=platform", l.key), err
}

func (d *demo) copyOf(ctx context.Context, l live) (string, error) {
	twin := &unstructured.Unstructured{Object: map[string]any{"spec": l.object.Object["spec"]}}
	twin.SetGroupVersionKind(l.object.GroupVersionKind())
	twin.SetNamespace(l.key.Namespace)
	twin.SetName("demo-copy")
	_, err := d.client.Resource(l.resource).Namespace(l.key.Namespace).
		Create(ctx, twin, metav1.CreateOptions{FieldManager: "ada"})
	d.twin = l
	d.twin.key.Name = twin.GetName()
	return fmt.Sprintf("Ada creates %s, a copy of %s", l.key.GroupResource().String()+" "+l.key.Namespace+"/demo-copy", l.key.Name), err
}

func (d *demo) remove(ctx context.Context, l live) (string, error) {
	if len(l.object.GetFinalizers()) > 0 || l.key.Name == "demo-copy" {
		return "", errors.New("it has finalizers, and no controller is there to remove them")
	}
	err := d.client.Resource(l.resource).Namespace(l.key.Namespace).Delete(ctx, l.key.Name, metav1.DeleteOptions{})
	return fmt.Sprintf("Grace deletes %s", l.key), err
}

// prove compares a fresh clone of the repository with a fresh listing of the
// cluster, both ways.
func (d *demo) prove(ctx context.Context) (string, error) {
	all, err := d.objects(ctx)
	if err != nil {
		return "", err
	}
	clone := filepath.Join(d.lab.Dir, "git", "clone")
	if out, err := exec.CommandContext(ctx, "git", "clone", "--quiet", d.lab.RemoteDir(), clone).CombinedOutput(); err != nil {
		return "", fmt.Errorf("clone: %w\n%s", err, out)
	}
	top := filepath.Join(clone, filepath.FromSlash(demoPath))
	expected := map[string]bool{sync.MarkerName: true}
	resources := map[schema.GroupResource]bool{}
	for _, l := range all {
		path := sync.PathOf(l.key)
		expected[path] = true
		resources[l.key.GroupResource()] = true
		want, err := kube.Encode(l.object, &kube.Shape{})
		if err != nil {
			return "", fmt.Errorf("encode %s: %w", l.key, err)
		}
		got, err := os.ReadFile(filepath.Join(top, filepath.FromSlash(path)))
		if err != nil {
			return "", fmt.Errorf("%s is not in git: %w", l.key, err)
		}
		if string(got) != string(want) {
			return "", fmt.Errorf("%s differs: git has\n%s\nthe cluster has\n%s", l.key, got, want)
		}
	}
	files := 0
	err = filepath.WalkDir(top, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		rel := strings.TrimPrefix(filepath.ToSlash(strings.TrimPrefix(path, top)), "/")
		if !expected[rel] {
			return fmt.Errorf("%s is in git, but not in the cluster", rel)
		}
		files++
		return nil
	})
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d objects of %d resources were listed, a clone has %d files (one is %s): every object equals its file, no file is left over.",
		len(all), len(resources), files, sync.MarkerName), nil
}
