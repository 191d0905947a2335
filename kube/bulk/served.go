package bulk

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"github.com/crmirror/crmirror/kube/apply"
	"github.com/crmirror/crmirror/kube/internal/wire"
)

// Discover asks what the server serves. A part that does not answer is in Served.Failed.
func (c *Client) Discover(ctx context.Context) (*Served, error) {
	groups, lists, err := c.discovery.ServerGroupsAndResourcesWithContext(ctx)
	var failed *discovery.ErrGroupDiscoveryFailed
	if err != nil && !errors.As(err, &failed) {
		return nil, fmt.Errorf("discover what is served: %w", apply.Unread(err, wire.Object{}))
	}
	byVersion := map[string][]metav1.APIResource{}
	for _, list := range lists {
		byVersion[list.GroupVersion] = list.APIResources
	}
	s := &Served{Kinds: map[schema.GroupResource]Kind{}}
	if failed != nil {
		s.Failed = failed.Groups
	}
	for _, group := range groups {
		for _, version := range inOrder(group) {
			gv := schema.GroupVersion{Group: group.Name, Version: version}
			s.add(gv, byVersion[gv.String()])
		}
	}
	return s, nil
}

// inOrder returns the versions of a group, the preferred one first.
func inOrder(group *metav1.APIGroup) []string {
	versions := []string{group.PreferredVersion.Version}
	for _, v := range group.Versions {
		if v.Version != versions[0] {
			versions = append(versions, v.Version)
		}
	}
	return versions
}

// add notes the resources of a version, after those that are preferred to it.
func (s *Served) add(gv schema.GroupVersion, resources []metav1.APIResource) {
	for _, r := range resources {
		if strings.Contains(r.Name, "/") {
			continue
		}
		gr := schema.GroupResource{Group: gv.Group, Resource: r.Name}
		k, known := s.Kinds[gr]
		if !known {
			k = Kind{Resource: gr, Kind: r.Kind, Namespaced: r.Namespaced}
		}
		status := slices.ContainsFunc(resources, func(sub metav1.APIResource) bool { return sub.Name == r.Name+"/status" })
		k.Versions = append(k.Versions, Version{Name: gv.Version, Status: status, Verbs: r.Verbs})
		s.Kinds[gr] = k
	}
}
