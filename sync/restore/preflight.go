package restore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/kube/apply"
	"github.com/crmirror/crmirror/kube/bulk"
	"github.com/crmirror/crmirror/sync"
)

// etcdLimit is the size of an object, as JSON, from which on etcd refuses it by default.
const etcdLimit = 1536 << 10

// preflight finds, of all that would be written, what stands in its way, and blocks that.
func (m *maker) preflight(ctx context.Context) error {
	m.checkNamespaces()
	m.checkDefinitions()
	m.checkSizes()
	m.tellNewerCRDs()
	for _, step := range []func(context.Context) error{m.checkWebhooks, m.resolveOwners, m.checkPermissions} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	// Others may stand on what was blocked last, or be owned by it.
	m.checkNamespaces()
	m.checkDefinitions()
	for again := true; again; {
		again = false
		for _, t := range m.targets {
			again = m.followOwners(t) || again
		}
	}
	m.noteControllers()
	return nil
}

// writes tells whether a target would be written as things are.
func (t *target) writes() bool { return t.action.Verb == Create || t.action.Verb == Update }

// report adds a finding about the targets that it keeps from being written.
func (m *maker) report(what, text string, targets []*target) {
	f := Finding{What: what, Text: text, Fatal: true}
	for _, t := range targets {
		f.Objects = append(f.Objects, t.action.Key)
		t.block(text)
	}
	slices.SortFunc(f.Objects, sync.CompareKeys)
	m.plan.Findings = append(m.plan.Findings, f)
}

// grouped returns the targets that would be written by what name says of them, "" for none of its concern.
func (m *maker) grouped(name func(*target) string) (groups map[string][]*target, names []string) {
	groups = map[string][]*target{}
	for _, t := range m.targets {
		if !t.writes() {
			continue
		}
		if n := name(t); n != "" {
			groups[n] = append(groups[n], t)
		}
	}
	return groups, slices.Sorted(maps.Keys(groups))
}

// checkNamespaces finds namespaces that are missing or going.
func (m *maker) checkNamespaces() {
	groups, names := m.grouped(func(t *target) string { return t.action.Key.Namespace })
	for _, name := range names {
		what := namespaceKey(name).String()
		live := m.spaces[name]
		planned := m.byKey[namespaceKey(name)]
		switch {
		case m.spaces == nil: // not known
		case live != nil && live.GetDeletionTimestamp() != nil:
			m.report(what, fmt.Sprintf("namespace %s is being deleted; run again when it is gone; "+
				"what it waits for is told by: kubectl get namespace %s -o yaml", name, name), groups[name])
		case live != nil || planned != nil && (planned.found || planned.action.Verb == Create):
		case planned != nil:
			m.report(what, fmt.Sprintf("namespace %s is not there and not restored: %s", name, planned.action.Reason), groups[name])
		default:
			m.report(what, fmt.Sprintf("namespace %s is neither in the cluster nor in git: kubectl create namespace %s", name, name), groups[name])
		}
	}
}

// checkSizes finds objects that the server will hardly take.
func (m *maker) checkSizes() {
	for _, t := range m.targets {
		if t.writes() && t.size > etcdLimit {
			m.plan.Findings = append(m.plan.Findings, Finding{What: t.action.Key.String(), Objects: []kube.Key{t.action.Key},
				Text: fmt.Sprintf("has %d bytes; etcd takes %d unless its --max-request-bytes says otherwise", t.size, etcdLimit)})
		}
	}
}

// keepsBack tells whether a target will not be there. One that the cluster got while this was planned is.
func (t *target) keepsBack() bool {
	return t.action.Verb == Blocked || t.action.Verb != Create && !t.found
}

// checkDefinitions finds CRDs of the cluster that cannot serve what is to be written.
func (m *maker) checkDefinitions() {
	groups, names := m.grouped(func(t *target) string { return t.item.Key.GroupResource().String() })
	for _, name := range names {
		gr := schema.ParseGroupResource(name)
		live, planned := m.definitions[gr], m.byKey[crdKey(gr)]
		switch {
		case live != nil && live.DeletionTimestamp != nil:
			m.report(crdKey(gr).String(), fmt.Sprintf("the CRD %s is being deleted; run again when it is gone", name), groups[name])
		case live != nil && notEstablished(live) != "":
			m.report(crdKey(gr).String(), fmt.Sprintf("the server does not serve the CRD %s: %s", name, notEstablished(live)), groups[name])
		case live == nil && planned != nil && planned.keepsBack() && m.onlyOurs(gr):
			m.report(crdKey(gr).String(), fmt.Sprintf("the CRD %s is not restored: %s", name, planned.action.Reason), groups[name])
		case live != nil && planned != nil && !m.renews(gr):
			// Some were planned by a CRD that turned out not to be updated.
			served := servedBy(live)
			stuck := slices.DeleteFunc(groups[name], func(t *target) bool { return slices.Contains(served, t.action.Resource.Version) })
			if len(stuck) > 0 {
				m.report(crdKey(gr).String(), fmt.Sprintf("the CRD %s is not updated: %s", name, planned.action.Reason), stuck)
			}
		}
	}
}

// tellNewerCRDs tells of CRDs that are left as they are, for the cluster's is ahead of git's.
func (m *maker) tellNewerCRDs() {
	for _, t := range m.targets {
		if problem := m.crdProblem(t.item.Key.GroupResource(), t.item); problem != "" && !t.support {
			m.plan.Findings = append(m.plan.Findings, Finding{What: t.action.Key.String(), Text: problem, Objects: []kube.Key{t.action.Key}})
		}
	}
}

// notEstablished says why a server does not serve a CRD that it has; "" if it does, or has yet to say.
func notEstablished(crd *definition) string {
	for _, c := range crd.Status.Conditions {
		if c.Type == apiextensionsv1.NamesAccepted && c.Status == apiextensionsv1.ConditionFalse {
			return sync.Printable(c.Message, messageRunes)
		}
	}
	return ""
}

// onlyOurs tells whether only the commit's CRD can make a resource served.
func (m *maker) onlyOurs(gr schema.GroupResource) bool {
	_, served := m.served.Resource(gr)
	return !served && m.defined[gr] != nil
}

// checkWebhooks finds conversion webhooks that do not answer. The server calls one for what is
// written at another version than it is stored at.
func (m *maker) checkWebhooks(ctx context.Context) error {
	groups, names := m.grouped(func(t *target) string { return t.item.Key.GroupResource().String() })
	for _, name := range names {
		gr := schema.ParseGroupResource(name)
		crd := m.inForce(gr)
		if crd == nil || !converts(crd) || crd.Spec.Conversion.Webhook == nil || crd.Spec.Conversion.Webhook.ClientConfig == nil ||
			crd.Spec.Conversion.Webhook.ClientConfig.Service == nil {
			continue
		}
		service := crd.Spec.Conversion.Webhook.ClientConfig.Service
		ready, err := m.cluster.Endpoints(ctx, types.NamespacedName{Namespace: service.Namespace, Name: service.Name})
		var refused *apply.Rejected
		if errors.As(err, &refused) {
			m.find(crdKey(gr).String(), fmt.Sprintf("whether somebody answers behind its conversion webhook, service %s/%s, is not known: %s",
				service.Namespace, service.Name, sync.Printable(refused.Error(), messageRunes)))
			continue
		}
		if err != nil {
			return err
		}
		if ready {
			continue
		}
		var other []*target
		for _, t := range groups[name] {
			if t.action.Resource.Version != storedAt(crd) {
				other = append(other, t)
			}
		}
		what, text := crdKey(gr).String(), fmt.Sprintf("nobody answers behind its conversion webhook, service %s/%s: start it first", service.Namespace, service.Name)
		if len(other) == 0 {
			m.find(what, text+", or whoever reads objects at another version than "+storedAt(crd)+" gets errors")
			continue
		}
		m.report(what, text, other)
	}
	return nil
}

// checkPermissions asks for everything that the plan needs: first for all namespaces at once, and where
// that is not allowed, for each namespace.
func (m *maker) checkPermissions(ctx context.Context) error {
	needs := map[bulk.Access][]*target{}
	for _, t := range m.targets {
		for _, access := range m.needed(t) {
			needs[access] = append(needs[access], t)
		}
	}
	everywhere := map[bulk.Access]bool{}
	for access := range needs {
		access.Namespace = ""
		everywhere[access] = false
	}
	if known, err := m.ask(ctx, everywhere); err != nil || !known {
		return err
	}
	single := map[bulk.Access]bool{}
	for access := range needs {
		all := access
		all.Namespace = ""
		if access.Namespace != "" && !everywhere[all] {
			single[access] = false
		}
	}
	if known, err := m.ask(ctx, single); err != nil || !known {
		return err
	}
	for _, access := range sortedAccesses(needs) {
		all := access
		all.Namespace = ""
		if !everywhere[all] && !single[access] {
			text := "you may not " + accessText(access)
			if m.opts.ReleaseOwnership && access.Verb == "update" && access.Subresource == "" {
				text += ", which --release-ownership takes too"
			}
			m.report(access.Resource.String(), text, needs[access])
		}
	}
	return nil
}

// needed are the accesses that writing a target takes, and reading it back.
func (m *maker) needed(t *target) []bulk.Access {
	var list []bulk.Access
	need := func(verb, subresource string) {
		list = append(list, bulk.Access{
			Verb: verb, Resource: t.item.Key.GroupResource(), Subresource: subresource, Namespace: t.action.Key.Namespace,
		})
	}
	release := m.opts.ReleaseOwnership
	switch v := t.action.Verb; {
	case t.support && t.found: // others stand on it as it is
		return nil
	case v == Create:
		need("create", "")
	case v == Update, v == Unchanged && release && t.action.Held:
		need("update", "")
	default:
		return nil
	}
	if release && t.action.Verb == Create {
		need("update", "")
	}
	need("get", "")
	if t.status && m.hasStatus(t.action.Resource) {
		need("update", "status")
	}
	return list
}

// hasStatus tells whether status is a subresource of what is to be written.
func (m *maker) hasStatus(gvr schema.GroupVersionResource) bool {
	if kind, ok := m.served.Resource(gvr.GroupResource()); ok && !m.renews(gvr.GroupResource()) {
		version, ok := kind.Version(gvr.Version)
		return ok && version.Status
	}
	crd := m.defined[gvr.GroupResource()]
	return crd != nil && slices.ContainsFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
		return v.Name == gvr.Version && v.Subresources != nil && v.Subresources.Status != nil
	})
}

// ask fills in the answers, unless the server takes no such questions: that is found then.
func (m *maker) ask(ctx context.Context, answers map[bulk.Access]bool) (known bool, err error) {
	accesses := sortedAccesses(answers)
	if len(accesses) == 0 {
		return true, nil
	}
	permissions, err := m.cluster.Allowed(ctx, accesses)
	if err != nil {
		reason, err := refusedFor(err)
		if err == nil {
			m.find("permissions", "what you may do cannot be asked, and is told when it is tried: "+reason)
		}
		return false, err
	}
	for i, access := range accesses {
		answers[access] = permissions[i].Allowed
	}
	return true, nil
}

func sortedAccesses[V any](m map[bulk.Access]V) []bulk.Access {
	return slices.SortedFunc(maps.Keys(m), func(a, b bulk.Access) int { return strings.Compare(accessText(a), accessText(b)) })
}

// accessText says what is done: "create certificates.cert-manager.io in namespace shop".
func accessText(a bulk.Access) string {
	text := a.Verb + " " + a.Resource.String()
	if a.Subresource != "" {
		text += "/" + a.Subresource
	}
	if a.Namespace != "" {
		text += " in namespace " + a.Namespace
	}
	return text
}

// noteControllers says of which kinds nobody should be at work meanwhile.
func (m *maker) noteControllers() {
	_, names := m.grouped(func(t *target) string {
		if t.action.Phase != Objects {
			return ""
		}
		return t.item.Key.Group
	})
	if len(names) > 0 {
		m.find("controllers", "those of "+strings.Join(names, ", ")+
			" should be down until the restore is done: they act on what is half there, and may change or delete it")
	}
}
