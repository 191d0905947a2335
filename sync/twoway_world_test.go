package sync

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/crmirror/crmirror/gitstore"
	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/kube/apply"
	"github.com/crmirror/crmirror/kube/informer"
	"github.com/crmirror/crmirror/kube/kubetest"
)

func TestMain(m *testing.M) { kubetest.Main(m) }

// pair is a real API server with a kind of its own for one test, a real bare
// repository, and whatever agent runs at the moment.
type pair struct {
	*world
	server *liveCluster
	hands  *hands
	dry    *hands // of dry runs
	opts   TwoWay
	cache  string

	unsettled []Unsettled // by the last resolve
}

// newPair makes the kind and an empty repository. No agent runs yet.
func newPair(t *testing.T) *pair {
	t.Helper()
	server := kubetest.Shared(t)
	config := rest.CopyConfig(server.Config)
	config.QPS, config.WarningHandler = -1, rest.NoWarnings{}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	schemas, err := apply.NewSchemas(config, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	writer, err := apply.NewWriter(config, schemas, apply.Options{})
	if err != nil {
		t.Fatal(err)
	}
	dry, err := apply.NewWriter(config, schemas, apply.Options{DryRun: true})
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	namespace := server.Namespace(t)
	p := &pair{
		world:  w,
		server: &liveCluster{t: t, client: client, group: namespace + ".test.dev", namespace: namespace},
		hands:  &hands{Writer: writer, Schemas: schemas},
		dry:    &hands{Writer: dry, Schemas: schemas},
		cache:  t.TempDir(),
	}
	p.server.kinds = []liveKind{{schema.GroupVersionResource{Group: p.server.group, Version: "v1", Resource: "widgets"}, "Widget"}}
	kubetest.InstallWidgets(t, client, p.server.group, namespace, nil)
	return p
}

func (p *pair) decode(text string) *unstructured.Unstructured {
	p.t.Helper()
	content, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		p.t.Fatal(err)
	}
	obj := &unstructured.Unstructured{}
	if err := obj.UnmarshalJSON(content); err != nil {
		p.t.Fatal(err)
	}
	return obj
}

// agent starts an agent in mode two-way: a new process, with the cache of the last.
func (p *pair) agent() {
	p.t.Helper()
	p.startAs(&p.opts)
}

func (p *pair) startAs(two *TwoWay) {
	p.t.Helper()
	p.stop()
	log := logrus.New()
	p.logs = &bytes.Buffer{}
	log.SetOutput(p.logs)
	log.SetLevel(logrus.DebugLevel)
	rules, err := p.rules.Compile()
	if err != nil {
		p.t.Fatal(err)
	}
	p.server.rules = rules
	refs := Refs("lab", "main", "clusters/lab")
	p.store, err = gitstore.Open(p.t.Context(), gitstore.Options{
		URL: p.url, Dir: p.cache, Branch: "main", Path: "clusters/lab", Refs: refs.All(), History: true,
		Author: gitstore.Identity{Name: "crmirror", Email: "crmirror@example.com"}, Log: log,
	})
	if err != nil {
		p.t.Fatal(err)
	}
	p.batch = NewBatch(BatchOptions{})
	p.inbox = NewInbox(p.batch, log)
	if two != nil {
		two.Hands = p.hands
		if two.DryRun {
			two.Hands = p.dry
		}
	}
	p.mirror = NewMirror(Options{
		ClusterName: "lab", Rules: rules, Tree: NewTree("lab", p.rules), Guard: p.guard, TwoWay: two, Log: log,
	}, p.inbox, p.server, p.store, refs)
	p.t.Cleanup(p.stop)
	p.relist()
}

// relist lets the informers see everything.
func (p *pair) relist() {
	p.t.Helper()
	ctx := p.t.Context()
	for _, k := range p.server.kinds {
		scope := informer.Scope{Resource: k.GroupResource()}
		list, err := p.server.objects(k.GroupResource()).List(ctx, metav1.ListOptions{})
		if err != nil {
			p.t.Fatal(err)
		}
		p.inbox.Listing(ctx, scope)
		names := map[string]bool{}
		for i := range list.Items {
			key := kube.Key{Group: k.Group, Resource: k.Resource, Namespace: p.server.namespace, Name: list.Items[i].GetName()}
			names[key.Name] = true
			p.seeKey(key)
		}
		p.inbox.Listed(ctx, scope, informer.Listing{Has: func(key kube.Key) bool { return names[key.Name] }})
	}
}

// see lets the informer see widgets as they are now.
func (p *pair) see(names ...string) {
	p.t.Helper()
	for _, name := range names {
		p.seeKey(p.server.key(name))
	}
}

// seeKey lets the informer see an object as it is now.
func (p *pair) seeKey(key kube.Key) {
	p.t.Helper()
	state, err := p.server.Get(p.t.Context(), key)
	switch {
	case err == nil:
		p.inbox.Changed(p.t.Context(), state)
	case errors.Is(err, informer.ErrNotFound):
		p.inbox.Absent(p.t.Context(), key, informer.Deleted)
	case errors.Is(err, informer.ErrUnselected):
		p.inbox.Absent(p.t.Context(), key, informer.Unselected)
	default:
		p.t.Fatal(err)
	}
}

// turn is one cycle that asks the remote first.
func (p *pair) turn() *Report {
	p.t.Helper()
	p.mirror.Recheck()
	return p.cycle()
}

func (p *pair) tryTurn() (*Report, error) {
	p.t.Helper()
	p.mirror.Recheck()
	return p.tryCycle()
}

// settled runs cycles until nothing moves, and returns the last report.
func (p *pair) settled() *Report {
	p.t.Helper()
	for range 6 {
		p.relist()
		before := p.refsNow()
		report := p.turn()
		if p.refsNow() == before {
			return report
		}
	}
	p.t.Fatal("cycles go on writing")
	return nil
}

// refsNow is where branch and base are; announcements come and go with every try.
func (p *pair) refsNow() string {
	return p.git("-C", p.remote, "for-each-ref", "--format=%(refname) %(objectname)", "refs/heads", p.mirror.refs.Base)
}
