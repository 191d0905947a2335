package main_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	gosync "sync"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/crmirror/crmirror/gitstore/gittest"
)

// electing is an agent's configuration with leader election, and a lease that is short,
// but not so short that a busy machine cannot renew it in time.
func electing(s served, w *widgets, mode, address string) string {
	return configFor(s.url(), w.group, fmt.Sprintf(`mode: %s
leaderElection: {enabled: true, namespace: %s, leaseDuration: 5s, renewDeadline: 4s, retryPeriod: 300ms}
health: {listen: '%s'}
`, mode, w.namespace, address))
}

// startElecting starts one of several agents of a path, each with a home of its own.
func startElecting(t *testing.T, s served, w *widgets, mode string) (a *agent, address string) {
	t.Helper()
	address = freeAddress(t)
	return newUser(t).start(electing(s, w, mode, address)), address
}

// load is a writer that changes widgets until it is stopped; the size of each only grows.
type load struct {
	stop context.CancelFunc
	done gosync.WaitGroup
}

// startLoad makes some widgets and begins.
func startLoad(t *testing.T, w *widgets, objects int) *load {
	t.Helper()
	for i := range objects {
		w.create(fmt.Sprintf("w%d", i), 1)
	}
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{stop: cancel}
	l.done.Go(func() {
		for n := objects; ctx.Err() == nil; n++ {
			body := fmt.Sprintf(`{"spec": {"size": %d}}`, n/objects+1)
			_, err := w.in().Patch(ctx, fmt.Sprintf("w%d", n%objects), types.MergePatchType, []byte(body), metav1.PatchOptions{FieldManager: "a-person"})
			if err != nil && ctx.Err() == nil {
				t.Error(err)
				return
			}
		}
	})
	t.Cleanup(l.end)
	return l
}

// end stops the writer.
func (l *load) end() {
	l.stop()
	l.done.Wait()
}

// waitEqual waits until main holds what the cluster has.
func (s served) waitEqual(t *testing.T, w *widgets) {
	t.Helper()
	eventually(t, "the newest state in git", func() error {
		if len(s.subjects(t)) == 0 {
			return errors.New("no commit yet")
		}
		if d := diff(t, s.dir, "main", "clusters/e2e", cluster(t, w.group)); d != "" {
			return errors.New(d)
		}
		return nil
	})
}

var sizeLine = regexp.MustCompile(`^\+  size: (\d+)$`)

// checkHistory fails the test if a commit changes nothing, or if a widget's size, which only
// ever grew, does not grow from each commit to the next: then a state was committed twice, or
// an old one over a newer one. revs are those of "git log".
func (s served) checkHistory(t *testing.T, revs ...string) {
	t.Helper()
	sizes := map[string]int{}
	var commit, path string
	files := 1
	for line := range strings.Lines(gittest.Git(t, s.dir, append([]string{"log", "--reverse", "--format=commit %H", "--patch", "--unified=0"}, revs...)...)) {
		line = strings.TrimRight(line, "\n")
		if h, ok := strings.CutPrefix(line, "commit "); ok {
			if files == 0 {
				t.Errorf("commit %s changes nothing", commit)
			}
			commit, files = h, 0
		}
		if strings.HasPrefix(line, "diff --git ") {
			files++
		}
		if p, ok := strings.CutPrefix(line, "+++ b/"); ok {
			path = p
		}
		if match := sizeLine.FindStringSubmatch(line); match != nil {
			size, err := strconv.Atoi(match[1])
			if err != nil {
				t.Fatal(err)
			}
			if before := sizes[path]; size <= before {
				t.Errorf("commit %s: size of %s: got %d after %d, want it to grow", commit, path, size, before)
			}
			sizes[path] = size
		}
	}
	if files == 0 {
		t.Errorf("commit %s changes nothing", commit)
	}
	if len(sizes) == 0 {
		t.Error("no widget in history")
	}
	gittest.Fsck(t, s.dir)
}

// waitStanding waits until an agent says on /readyz that it is ready and stands by.
func waitStanding(t *testing.T, address string) {
	t.Helper()
	eventually(t, "a standby that is ready", func() error {
		response, err := http.Get("http://" + address + "/readyz?verbose")
		if err != nil {
			return err
		}
		defer response.Body.Close()
		body := make([]byte, 4096)
		n, _ := response.Body.Read(body)
		if text := string(body[:n]); response.StatusCode != http.StatusOK || !strings.Contains(text, "standing by; lease ") {
			return fmt.Errorf("%s: %s", response.Status, text)
		}
		return metric("http://"+address+"/metrics", "crmirror_leader 0")
	})
}

// Under load a leader is told to stop, and the next one is killed: each time a standby goes on, every
// newest state arrives, and no state is committed twice.
func TestHandover(t *testing.T) {
	t.Parallel()
	w := newWidgets(t, "handover.example.dev").install()
	server := newServer(t)
	load := startLoad(t, w, 5)
	first, _ := startElecting(t, server, w, "mirror")
	first.waitLog("in sync")
	second, address := startElecting(t, server, w, "mirror")
	waitStanding(t, address)
	first.stop()
	second.waitLog("level=info msg=leading")
	second.waitLog("in sync")
	if err := metric("http://"+address+"/metrics", "crmirror_leader 1"); err != nil {
		t.Error(err)
	}
	third, address := startElecting(t, server, w, "mirror")
	waitStanding(t, address)
	second.signal(syscall.SIGKILL)
	second.wait()
	third.waitLog("in sync")
	server.endLed(t, w, load, third)
}

// endLed ends the load and the last leader, and checks that every newest state arrived and none twice.
func (s served) endLed(t *testing.T, w *widgets, load *load, last *agent) {
	t.Helper()
	load.end()
	s.waitEqual(t, w)
	last.stop()
	s.wantEqual(t, w)
	s.checkHistory(t, "main")
	checkBase(t, s.dir, "main", "clusters/e2e")
}

// A leader that is stopped for longer than its lease, under load, and revived when another one leads, pushes nothing
// more and ends, with a line that says why.
func TestPausedLeader(t *testing.T) {
	for _, mode := range []string{"mirror", "two-way"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			w := newWidgets(t, "paused-"+mode+".example.dev").install()
			server := newServer(t)
			load := startLoad(t, w, 5)
			old, _ := startElecting(t, server, w, mode)
			old.waitLog("in sync")
			standby, address := startElecting(t, server, w, mode)
			waitStanding(t, address)
			old.signal(syscall.SIGSTOP)
			standby.waitLog("in sync")
			old.signal(syscall.SIGCONT)
			if code := old.wait(); code != 1 || !strings.Contains(old.log.String(), "this agent ends, so that nothing of it goes on") {
				t.Errorf("the old leader: got exit code %d and\n%s\nwant 1, and why", code, old.log.String())
			}
			server.endLed(t, w, load, standby)
		})
	}
}
