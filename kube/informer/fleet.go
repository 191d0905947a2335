package informer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/crmirror/crmirror/kube"
)

// Options say what a Fleet watches and how.
type Options struct {
	// Config is the connection. It is copied, without its rate limit and its
	// overall timeout: the server's own fairness does the first, and the second
	// would cut watches.
	Config *rest.Config
	// Rules select the objects.
	Rules *kube.Rules
	// Sink is told what is seen.
	Sink Sink
	// Log gets what is worth knowing beyond what the Sink is told.
	Log logrus.FieldLogger
	// IncludeCRDs tells the definitions of the selected resources too.
	IncludeCRDs bool
	// IncludeNamespaces tells every Namespace too, by default shape unless a rule
	// names the resource "namespaces".
	IncludeNamespaces bool
	// PageSize is the number of objects asked for at once where the server cannot
	// stream a listing. Zero means 500.
	PageSize int64
	// Listings is how many scopes may be listed at the same time: each holds some
	// megabytes in buffers while the Sink is slow. Zero means 8.
	Listings int
	// RequestTimeout bounds each request that is not a watch. Zero means a minute.
	RequestTimeout time.Duration
	// RetryMin and RetryMax bound the waiting time after a failure, which doubles
	// each time. Zero means one second and one minute.
	RetryMin, RetryMax time.Duration
	// Recheck is how often a resource is looked for that a rule names and that no
	// server serves. Zero means 30 seconds.
	Recheck time.Duration
	// Settle is how long after a change of a CRD its objects are listed again: the
	// server itself needs a moment to serve the new one. Zero means two seconds.
	Settle time.Duration
	// Silence is how long nothing may come from a watch, not even the bookmarks that
	// servers send every minute, before it is opened anew where it stood. Zero means 100
	// seconds.
	Silence time.Duration
	// PulseEvery is how often the server is asked whether it answers at all, and
	// PulseTimeout how long that may take. Zero means 15 and 10 seconds.
	PulseEvery, PulseTimeout time.Duration
}

// withDefaults fills in the defaults.
func (o Options) withDefaults() Options {
	if o.PageSize == 0 {
		o.PageSize = 500
	}
	if o.Listings == 0 {
		o.Listings = 8
	}
	for _, d := range []struct {
		value *time.Duration
		zero  time.Duration
	}{
		{&o.RequestTimeout, time.Minute}, {&o.RetryMin, time.Second}, {&o.RetryMax, time.Minute},
		{&o.Recheck, 30 * time.Second}, {&o.Settle, 2 * time.Second},
		{&o.Silence, 100 * time.Second}, {&o.PulseEvery, 15 * time.Second}, {&o.PulseTimeout, 10 * time.Second},
	} {
		if *d.value == 0 {
			*d.value = d.zero
		}
	}
	return o
}

// Fleet runs the informers of all selected resources.
type Fleet struct {
	options   Options
	client    dynamic.Interface
	discovery discovery.DiscoveryInterfaceWithContext
	// wake tells the loop of Run that there may be something to start or stop.
	wake chan struct{}
	// slots are the listings that may run at the same time.
	slots chan struct{}
	// due is when the informers of a resource are to be restarted for its changed
	// CRD; checked is when a resource that a rule names was last looked for. Only
	// the loop of Run uses them.
	due, checked map[schema.GroupResource]time.Time

	mu sync.Mutex
	// definitions are the CRDs that exist, by resource.
	definitions map[schema.GroupResource]definition
	// kinds are the resources that run, have run, or are named by a rule.
	kinds map[schema.GroupResource]*kind
	// changes counts the changes of definitions; planned is that count as of
	// which kinds is up to date, and zero before the first time.
	changes, planned int
	// news is closed, and replaced, when Synced or Status may have changed.
	news  chan struct{}
	pulse Pulse
}

// New prepares a Fleet. It does not speak to the server.
func New(options Options) (*Fleet, error) {
	options = options.withDefaults()
	config := rest.CopyConfig(options.Config)
	config.QPS, config.Burst, config.RateLimiter = -1, 0, nil
	config.Timeout = 0
	config.WarningHandler = rest.NoWarnings{}
	client, err := connect(config)
	if err != nil {
		return nil, fmt.Errorf("connect to cluster: %w", err)
	}
	config.Timeout = options.RequestTimeout
	served, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connect to cluster: %w", err)
	}
	return &Fleet{
		options: options, client: client, discovery: served,
		wake:        make(chan struct{}, 1),
		slots:       make(chan struct{}, options.Listings),
		due:         map[schema.GroupResource]time.Time{},
		checked:     map[schema.GroupResource]time.Time{},
		definitions: map[schema.GroupResource]definition{},
		kinds:       map[schema.GroupResource]*kind{},
		changes:     1,
		news:        make(chan struct{}),
	}, nil
}

// Run watches until the context ends and returns when nothing runs any more.
// A server that cannot be reached is no error: it is told as Failing. A Fleet
// runs once.
func (f *Fleet) Run(ctx context.Context) error {
	f.startFixed(ctx)
	defer f.stopAll()
	var pulse sync.WaitGroup
	defer pulse.Wait()
	pulse.Go(func() { f.feelPulse(ctx) })
	for {
		next := f.reconcile(ctx)
		timer := time.NewTimer(next)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-f.wake:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// Relist lists everything again, at once: what a listing shows and no event told,
// such as defaults that came with a new CRD, is told then.
func (f *Fleet) Relist() {
	for _, i := range f.informers() {
		i.relist(nil)
	}
}

// Synced says that all scopes are known and that the Sink has been told of each
// that it is listed or failing.
func (f *Fleet) Synced() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.planned != f.changes {
		return false
	}
	for _, k := range f.kinds {
		for _, i := range k.informers {
			if !i.current().settled {
				return false
			}
		}
	}
	return true
}

// WaitSynced returns when Synced is true, or with the context's error.
func (f *Fleet) WaitSynced(ctx context.Context) error {
	for {
		f.mu.Lock()
		news := f.news
		f.mu.Unlock()
		if f.Synced() {
			return nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return fmt.Errorf("wait for the first listings: %w", ctx.Err())
		}
	}
}

// notify wakes WaitSynced and the loop of Run.
func (f *Fleet) notify() {
	f.announce()
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// announce wakes WaitSynced.
func (f *Fleet) announce() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.news)
	f.news = make(chan struct{})
}

// informers returns those that run.
func (f *Fleet) informers() []*informer {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []*informer
	for _, k := range f.kinds {
		for _, i := range k.informers {
			all = append(all, i)
		}
	}
	return all
}

// stopAll waits for everything that runs.
func (f *Fleet) stopAll() {
	for _, i := range f.informers() {
		i.stop()
	}
}

// errNotServed says that a resource that a rule names does not exist.
var errNotServed = errors.New("no server serves this resource")
