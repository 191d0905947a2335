//go:build long

package main_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/crmirror/crmirror/gitstore/gittest"
	"github.com/crmirror/crmirror/kube/kubetest"
)

// killing is how long the restore is killed again and again, at most; then it may end.
const killing = 2 * time.Minute

// The corpus is mirrored from one API server and restored into an empty one, killed at random moments and run again until
// it ends. Then every object is equal, or it is named with what became of it. CRMIRROR_SEED repeats a run.
func TestRestoreCorpusKilled(t *testing.T) {
	corpus, err := kubetest.CorpusDir()
	if err != nil {
		t.Fatal(err)
	}
	from, to := kubetest.New(t, kubetest.Options{}), kubetest.New(t, kubetest.Options{})
	loaded, err := kubetest.Load(t.Context(), from.Config, corpus)
	if err != nil {
		t.Fatal(err)
	}
	u := newUser(t)
	u.env = []string{"KUBECONFIG=" + from.Kubeconfig}
	u.succeed("backup", "--repo", "backup")
	u.env = []string{"KUBECONFIG=" + to.Kubeconfig}

	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("CRMIRROR_SEED"); text != "" {
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	kills := killRestores(t, u, rand.New(rand.NewPCG(seed, 0)))
	t.Logf("seed %d: %d objects of %d CRDs, killed %d times", seed, len(loaded.Objects), loaded.CRDs, kills)
	if kills == 0 {
		t.Error("no run was killed")
	}
	r := u.run("restore", "--repo", "backup")
	if r.code != 0 && r.code != 3 {
		t.Fatalf("got %v\nwant it done", r)
	}
	d := &disaster{t: t, u: u, repo: u.path("backup")}
	second := d.restore(r.code)
	if second.Totals["created"]+second.Totals["configured"] > 0 {
		t.Errorf("totals of a run after the last: got %v, want nothing left to be done", second.Totals)
	}
	wantEqualOrNamed(t, d, second)
}

// killRestores kills restores until one ends by itself or the time is over, and tells how many it killed.
func killRestores(t *testing.T, u *user, random *rand.Rand) (kills int) {
	t.Helper()
	until := time.Now().Add(killing)
	for limit := 500 * time.Millisecond; time.Now().Before(until); limit += 250 * time.Millisecond {
		cmd := u.command("restore", "--repo", "backup")
		cmd.Stdout, cmd.Stderr = io.Discard, io.Discard
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		kill := time.AfterFunc(time.Duration(random.Int64N(int64(limit))), func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait() // killed, or done before
		kill.Stop()
		if cmd.ProcessState.ExitCode() != -1 {
			return kills
		}
		kills++
	}
	return kills
}

// wantEqualOrNamed compares a backup of the restored cluster with the one that it was restored from: what is another
// file there, or is missing, must be named in the report.
func wantEqualOrNamed(t *testing.T, d *disaster, report restored) {
	t.Helper()
	d.u.succeed("backup", "--repo", "again")
	trees := func(dir string) map[string]string {
		files := map[string]string{}
		for line := range strings.Lines(gittest.Git(t, dir, "ls-tree", "-r", "-z", "HEAD", "cluster", "namespaces")) {
			for entry := range strings.SplitSeq(line, "\x00") {
				if blob, path, ok := strings.Cut(entry, "\t"); ok {
					files[path] = blob
				}
			}
		}
		return files
	}
	was, is := trees(d.repo), trees(d.u.path("again"))
	named := d.named(report)
	for path, blob := range was {
		if is[path] == blob {
			continue
		}
		why := named[path]
		if !strings.Contains(why, "would run again") {
			t.Errorf("%s: is not as it was, and the report says %q", path, why)
		}
		delete(named, path)
	}
	for path, why := range named {
		t.Errorf("%s: is as it was, and the report says %s", path, why)
	}
	t.Logf("%d files, %d after the restore", len(was), len(is))
}

// named are the files of objects that a report says more of than that they are there, with what it says.
func (d *disaster) named(report restored) map[string]string {
	d.t.Helper()
	named := map[string]string{}
	for _, o := range report.objects(d.t) {
		if o.Result != "unchanged" {
			named[o.File] = fmt.Sprintf("%s: %s", o.Result, o.Reason)
		}
	}
	return named
}
