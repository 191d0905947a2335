package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/crmirror/crmirror/kube/kubetest"
)

const (
	kinds      = 10
	namespaces = 40
	group      = "bench.example.com"
)

var (
	crdResource       = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	namespaceResource = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
)

// resourceOf is the resource of the i-th kind.
func resourceOf(kind int) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group, Version: "v1", Resource: fmt.Sprintf("widget%02ds", kind)}
}

// place is where the i-th object lies: kinds and namespaces are filled evenly.
func place(i int) (resource schema.GroupVersionResource, namespace, name string) {
	return resourceOf(i % kinds), fmt.Sprintf("team-%02d", i/kinds%namespaces), fmt.Sprintf("object-%06d", i)
}

// object is the i-th custom resource: about size bytes of JSON as a person would
// write it, spec and labels; the server adds its own.
func object(i, size int) *unstructured.Unstructured {
	_, namespace, name := place(i)
	spec := map[string]any{"replicas": int64(i % 7), "paused": i%2 == 0, "revision": int64(0)}
	for field, length := 0, 400; length < size; field++ {
		line := fmt.Sprintf("value-%d-of-%d for the object %d", field, size, i*7919%100003)
		spec[fmt.Sprintf("field%04d", field)] = line
		length += len(line) + 16
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": group + "/v1",
		"kind":       fmt.Sprintf("Widget%02d", i%kinds),
		"metadata": map[string]any{
			"namespace": namespace, "name": name,
			"labels": map[string]any{"app.kubernetes.io/name": "bench", "app.kubernetes.io/part-of": fmt.Sprintf("part-%d", i%13)},
		},
		"spec": spec,
	}}
}

// definition is the CRD of the i-th kind.
func definition(kind int) *unstructured.Unstructured {
	plural := resourceOf(kind).Resource
	open := map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": plural + "." + group},
		"spec": map[string]any{
			"group": group, "scope": "Namespaced",
			"names": map[string]any{"plural": plural, "singular": strings.TrimSuffix(plural, "s"), "kind": fmt.Sprintf("Widget%02d", kind)},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true,
				"subresources": map[string]any{"status": map[string]any{}},
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object",
					"properties": map[string]any{"spec": open, "status": open}}},
			}},
		},
	}}
}

// newCluster starts a control plane with n objects of about size bytes. It runs
// until the benchmarks end.
func (b *bench) newCluster(ctx context.Context, n, size int) (*kubetest.Cluster, error) {
	begin := time.Now()
	c, err := kubetest.Start(ctx, kubetest.Options{})
	if err != nil {
		return nil, err
	}
	b.cleanup(c.Stop)
	client, err := dynamic.NewForConfig(unlimited(c.Config))
	if err != nil {
		return nil, err
	}
	if err := prepare(ctx, client); err != nil {
		return nil, err
	}
	creating, within := errgroup.WithContext(ctx)
	creating.SetLimit(16)
	for i := range n {
		creating.Go(func() error {
			resource, namespace, _ := place(i)
			_, err := client.Resource(resource).Namespace(namespace).Create(within, object(i, size), metav1.CreateOptions{FieldManager: "bench"})
			return err
		})
	}
	if err := creating.Wait(); err != nil {
		return nil, fmt.Errorf("create objects: %w", err)
	}
	fmt.Printf("   %d objects of %d bytes loaded in %.0f s\n", n, size, time.Since(begin).Seconds())
	return c, nil
}

// prepare creates kinds and namespaces, and waits until the kinds are served.
func prepare(ctx context.Context, client dynamic.Interface) error {
	for i := range kinds {
		if _, err := client.Resource(crdResource).Create(ctx, definition(i), metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	for i := range namespaces {
		ns := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace",
			"metadata": map[string]any{"name": fmt.Sprintf("team-%02d", i)}}}
		if _, err := client.Resource(namespaceResource).Create(ctx, ns, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	for i := range kinds {
		if err := poll(ctx, time.Minute, func() error {
			_, err := client.Resource(resourceOf(i)).List(ctx, metav1.ListOptions{})
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

// poll tries until it works, for so long.
func poll(ctx context.Context, deadline time.Duration, try func() error) error {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		}
	}
}

// unlimited is a client configuration without client-side throttling.
func unlimited(config *rest.Config) *rest.Config {
	c := rest.CopyConfig(config)
	c.QPS = -1
	return c
}

// listAll is the reference of everything that reads the cluster: client-go's
// LIST in pages of 500, decoded to Unstructured. It returns how many it read.
func listAll(ctx context.Context, config *rest.Config) (objects int, err error) {
	client, err := dynamic.NewForConfig(unlimited(config))
	if err != nil {
		return 0, err
	}
	for i := range kinds {
		options := metav1.ListOptions{Limit: 500}
		for {
			list, err := client.Resource(resourceOf(i)).List(ctx, options)
			if err != nil {
				return 0, err
			}
			objects += len(list.Items)
			if options.Continue = list.GetContinue(); options.Continue == "" {
				break
			}
		}
	}
	return objects, nil
}
