package metrics

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/crmirror/crmirror/gitstore"
	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/kube/informer"
	"github.com/crmirror/crmirror/sync"
)

var widgets = schema.GroupResource{Group: "shop.example.dev", Resource: "widgets"}

// busy returns Metrics of an agent that has seen everything.
func busy() *Metrics {
	m := New("v1")
	m.Watch(Sources{
		Health: func() sync.HealthState {
			return sync.HealthState{Started: true, Conflicts: map[string]int{"widgets.shop.example.dev": 2}, Held: 3}
		},
		Resources: func() []informer.ResourceStatus {
			return []informer.ResourceStatus{
				{Scope: informer.Scope{Resource: widgets, Namespace: "a"}, Phase: informer.PhaseSynced, Objects: 4},
				{Scope: informer.Scope{Resource: widgets, Namespace: "b"}, Phase: informer.PhaseFailing, Objects: 1},
			}
		},
		Quarantined: func() map[kube.Key]error {
			return map[kube.Key]error{{Group: widgets.Group, Resource: widgets.Resource, Namespace: "a", Name: "x"}: errors.New("no")}
		},
		Dirty: func() int { return 5 },
	})
	m.Seen(widgets, sync.SightChanged)
	m.Seen(widgets, sync.SightChanged)
	m.Seen(widgets, sync.SightDeleted)
	m.Taken(3)
	m.Waiting(7, time.Unix(1000, 0))
	m.Retried()
	m.Begin(sync.OpPush)(nil)
	m.Begin(sync.OpFetch)(gitstore.ErrAuth)
	m.requests.WithLabelValues("get", "200").Observe(1)
	return m
}

func TestWhatIsTold(t *testing.T) {
	const want = `
# HELP crmirror_backlog_objects Objects whose push is not acknowledged, those in the open batch included.
# TYPE crmirror_backlog_objects gauge
crmirror_backlog_objects 12
# HELP crmirror_backlog_oldest_timestamp_seconds Since when the oldest change waits that was taken for a commit, Unix time; 0 for none.
# TYPE crmirror_backlog_oldest_timestamp_seconds gauge
crmirror_backlog_oldest_timestamp_seconds 1000
# HELP crmirror_conflicts Fields and objects that git and the cluster have differently, by resource; they are written on neither side.
# TYPE crmirror_conflicts gauge
crmirror_conflicts{resource="widgets.shop.example.dev"} 2
# HELP crmirror_errors_total Operations that failed, by operation and cause.
# TYPE crmirror_errors_total counter
crmirror_errors_total{cause="auth",operation="fetch"} 1
# HELP crmirror_in_sync 1 when the first sync was finished and the last cycle did not fail, else 0.
# TYPE crmirror_in_sync gauge
crmirror_in_sync 1
# HELP crmirror_informers Informers, by resource and phase: listing (not complete yet), synced, failing (it cannot be read), gone (its CRD is).
# TYPE crmirror_informers gauge
crmirror_informers{phase="failing",resource="widgets.shop.example.dev"} 1
crmirror_informers{phase="gone",resource="widgets.shop.example.dev"} 0
crmirror_informers{phase="listing",resource="widgets.shop.example.dev"} 0
crmirror_informers{phase="synced",resource="widgets.shop.example.dev"} 1
# HELP crmirror_objects Objects in the cluster that rules select, by resource.
# TYPE crmirror_objects gauge
crmirror_objects{resource="widgets.shop.example.dev"} 5
# HELP crmirror_quarantined_objects Objects that cannot be written to git, by resource; their files stay as they are.
# TYPE crmirror_quarantined_objects gauge
crmirror_quarantined_objects{resource="widgets.shop.example.dev"} 1
# HELP crmirror_watch_events_total What watches told of objects, by resource and type: changed, deleted, unselected (no rule selects it), quarantined (it cannot be written).
# TYPE crmirror_watch_events_total counter
crmirror_watch_events_total{resource="widgets.shop.example.dev",type="changed"} 2
crmirror_watch_events_total{resource="widgets.shop.example.dev",type="deleted"} 1
`
	err := testutil.GatherAndCompare(busy().registry, strings.NewReader(want),
		"crmirror_backlog_objects", "crmirror_backlog_oldest_timestamp_seconds", "crmirror_conflicts", "crmirror_errors_total", "crmirror_in_sync",
		"crmirror_informers", "crmirror_objects", "crmirror_quarantined_objects", "crmirror_watch_events_total")
	if err != nil {
		t.Error(err)
	}
}

// Prometheus' own linter has nothing to say about names, units and help texts.
func TestConventions(t *testing.T) {
	problems, err := testutil.GatherAndLint(busy().registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// What takes time is measured from its beginning to its end, and seen while it is under way.
func TestTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New("v1")
		seen := time.Now()
		end := m.Begin(sync.OpPush)
		<-time.After(3 * time.Second)
		if since := m.Running()[sync.OpPush]; !since.Equal(seen) {
			t.Errorf("push runs since: got %v, want %v", since, seen)
		}
		end(nil)
		m.Acknowledged(seen)
		if running := m.Running(); len(running) != 0 {
			t.Errorf("running after the end: got %v, want nothing", running)
		}
		if got, want := testutil.ToFloat64(m.lastPush), float64(time.Now().Unix()); got != want {
			t.Errorf("last push: got %v, want %v", got, want)
		}
		for _, metric := range []string{`crmirror_operation_duration_seconds_sum{operation="push"} 3`, "crmirror_change_lag_seconds_sum 3"} {
			if text := scrape(t, m); !strings.Contains(text, metric+"\n") {
				t.Errorf("got\n%s\nwant %s in it", text, metric)
			}
		}
	})
}

func scrape(t *testing.T, m *Metrics) string {
	t.Helper()
	answer := httptest.NewRecorder()
	m.Handler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return answer.Body.String()
}

func TestCause(t *testing.T) {
	forbidden := apierrors.NewForbidden(widgets, "a", errors.New("no"))
	for _, tt := range []struct {
		err  error
		want string
	}{
		{fmt.Errorf("push: %w", gitstore.ErrAuth), "auth"},
		{&gitstore.HostKeyError{}, "host_key"},
		{&gitstore.RefusedError{Ref: "refs/heads/main"}, "refused"},
		{gitstore.ErrDiverged, "diverged"},
		{errors.Join(fmt.Errorf("fetch: %w", gitstore.ErrUnreachable), io.ErrUnexpectedEOF), "unreachable"},
		{gitstore.ErrBusy, "locked"},
		{&sync.RewoundError{}, "other_cluster"},
		{fmt.Errorf("list: %w", forbidden), "kube_forbidden"},
		{apierrors.NewInternalError(errors.New("etcd")), "kube"},
		{context.DeadlineExceeded, "timeout"},
		{context.Canceled, "canceled"},
		{errors.New("anything"), "other"},
	} {
		if got := Cause(tt.err); got != tt.want {
			t.Errorf("cause of %v: got %s, want %s", tt.err, got, tt.want)
		}
	}
}

func TestVerb(t *testing.T) {
	got := map[string]string{}
	want := map[string]string{
		"GET /api/v1/namespaces":                                "list",
		"GET /api/v1/namespaces/shop":                           "get",
		"GET /api/v1/namespaces/shop/configmaps":                "list",
		"GET /apis/shop.example.dev/v1/widgets?watch=true":      "watch",
		"GET /apis/shop.example.dev/v1/namespaces/a/widgets/x":  "get",
		"GET /apis/shop.example.dev/v1/namespaces/a/widgets":    "list",
		"PATCH /apis/shop.example.dev/v1/namespaces/a/widgets/": "patch",
		"POST /api/v1/namespaces/shop/events":                   "create",
		"GET /apis/shop.example.dev/v1":                         "discover",
		"GET /api":                                              "discover",
		"GET /version":                                          "discover",
		"GET /openapi/v3/apis/shop.example.dev/v1":              "discover",
	}
	for request := range want {
		method, path, _ := strings.Cut(request, " ")
		got[request] = verb(httptest.NewRequest(method, path, nil))
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("verbs (-want +got):\n%s", d)
	}
}

// A request counts with its status, and with error when there was no answer.
func TestTransport(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	m := New("v1")
	client := &http.Client{Transport: m.Transport(http.DefaultTransport)}
	for range 2 {
		if answer, err := client.Get(server.URL + "/api/v1/namespaces"); err == nil {
			answer.Body.Close()
		}
		server.Close()
	}
	text := scrape(t, m)
	for _, code := range []string{"404", "error"} {
		if want := `crmirror_kube_request_duration_seconds_count{code="` + code + `",verb="list"} 1`; !strings.Contains(text, want) {
			t.Errorf("got\n%s\nwant %s in it", text, want)
		}
	}
}
