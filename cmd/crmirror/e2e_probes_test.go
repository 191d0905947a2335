package main_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/crmirror/crmirror/kube/kubetest"
)

// TestProbesTellOfSilence: a push that hangs and an API server that has fallen silent show at
// /readyz, each by its name, within a minute, and nothing of it at /healthz; it is over when they answer again.
func TestProbesTellOfSilence(t *testing.T) {
	t.Parallel()
	w := newWidgets(t, "silence.example.dev").install()
	w.create("a", 1)
	server := newServer(t)
	u := newUser(t)
	api := newAPIProxy(t)
	u.env = []string{"KUBECONFIG=" + u.file("kubeconfig", `apiVersion: v1
kind: Config
clusters: [{name: lab, cluster: {server: "`+api.URL+`"}}]
contexts: [{name: lab, context: {cluster: lab}}]
current-context: lab
`)}
	config, address := watchedConfig(t, server, w.group, "")
	agent := u.start(config)
	agent.waitLog("in sync")
	checks := func(what string, want ...string) (took time.Duration) {
		t.Helper()
		began := time.Now()
		eventually(t, what, func() error {
			text, err := get("http://" + address + "/readyz?verbose")
			for _, line := range want {
				if err == nil && !strings.Contains(text, line) {
					err = fmt.Errorf("%s", text)
				}
			}
			return err
		})
		return time.Since(began)
	}
	checks("all to be well", "[+]start ok\n", "[+]api ok\n", "[+]git ok\n", "[+]remote ok\n", "[+]watches ok ", "readyz check passed\n")

	reached, hang := make(chan struct{}, 1), make(chan struct{})
	server.Intercept(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPost {
			select {
			case reached <- struct{}{}:
			default:
			}
			<-hang
		}
		return false
	})
	w.patch("a", `{"spec": {"size": 2}}`)
	select {
	case <-reached:
	case <-time.After(patience):
		t.Fatal("no push came")
	}
	api.silence()
	took := checks("both to show", "[-]remote failed: a push has been under way for ", "[-]api failed: no answer within 10s", "readyz check failed\n")
	t.Logf("shown after %v", took)
	if text, err := get("http://" + address + "/healthz"); err != nil || strings.Contains(text, "failing") {
		t.Errorf("/healthz: got %s, %v, want nothing to fail", text, err)
	}
	close(hang)
	server.Intercept(nil)
	api.speak()
	checks("all to be well again", "readyz check passed\n")
	agent.stop()
	server.wantEqual(t, w)
}

// apiProxy stands between an agent and the lab's first API server, and can fall silent.
type apiProxy struct {
	*httptest.Server
	silent chan chan struct{} // holds a channel that is closed while it speaks
}

func newAPIProxy(t *testing.T) *apiProxy {
	t.Helper()
	forward := kubetest.Forward(t, world.lab.Clusters[0].Config)
	p := &apiProxy{silent: make(chan chan struct{}, 1)}
	p.speak()
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		open := <-p.silent
		p.silent <- open
		select {
		case <-open:
			forward.ServeHTTP(w, r)
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(func() {
		p.CloseClientConnections()
		p.Close()
	})
	return p
}

// silence lets requests wait from now on.
func (p *apiProxy) silence() {
	<-p.silent
	p.silent <- make(chan struct{})
}

// speak answers them, and those that wait.
func (p *apiProxy) speak() {
	var open chan struct{}
	select {
	case open = <-p.silent:
	default:
		open = make(chan struct{})
	}
	close(open)
	p.silent <- open
}
