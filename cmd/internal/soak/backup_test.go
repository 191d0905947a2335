//go:build long

package soak

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/crmirror/crmirror/gitstore/gittest"
	"github.com/crmirror/crmirror/kube/kubetest"
)

const (
	backupRounds = 40
	backupConfig = `apiVersion: crmirror.dev/v1alpha1
kind: Config
cluster: soak
kubeconfig: %s
repository: {url: %s, branch: main, path: %s}
select:
  - resources: ["*.soak.example.dev"]
    drop: [.spec.noise]
  - resources: [configmaps]
    namespaces: ["soak-*"]
exclude:
  - resources: ["*.soak.example.dev"]
    labelSelector: skip=yes
guard: {maxDeleteObjects: 100000, maxDeletePercent: 100}
`
)

// Backups into somebody's own repository are killed at random moments, every
// other one just when it begins to write there. The repository is sound after
// each, and a backup that is left in peace puts everything right.
func TestSoakBackup(t *testing.T) {
	b := newBackupSoak(t)
	for round := range backupRounds {
		for range b.rng.IntN(40) {
			b.cluster.operate()
		}
		if round == backupRounds/2 {
			b.cluster.deleteCRD()
		}
		b.killed(round)
		gittest.Fsck(t, b.repo)
		if b.rng.IntN(4) == 0 || round == backupRounds-1 {
			b.inPeace()
		}
	}
	b.people.checkHistory()
	b.people.checkBase()
	t.Logf("%d operations, %d backups killed, %d of them while they wrote, %d ended before",
		b.cluster.operations, b.kills, b.writing, b.finished)
}

// backupSoak is one run of it.
type backupSoak struct {
	t       *testing.T
	rng     *rand.Rand
	cluster *soakCluster
	people  *people
	binary  string
	config  string // file
	repo    string // folder
	took    time.Duration

	kills, writing, finished int
}

func newBackupSoak(t *testing.T) *backupSoak {
	t.Helper()
	rng := soakRandom(t)
	c := kubetest.New(t, kubetest.Options{})
	dir := t.TempDir()
	b := &backupSoak{
		t: t, rng: rng, binary: buildCrmirror(t),
		config: filepath.Join(dir, "crmirror.yaml"), repo: filepath.Join(dir, "backup"),
	}
	writeFile(t, b.config, fmt.Sprintf(backupConfig, c.Kubeconfig, b.repo, soakPath))
	b.cluster = newSoakCluster(t, rng, c.Config, b.config)
	for range 300 {
		b.cluster.operate()
	}
	began := time.Now()
	if code, out := b.backup(); code != exitDone {
		t.Fatalf("first backup: exit code %d\n%s", code, out)
	}
	b.took = time.Since(began)
	b.people = newPeople(t, rng, b.repo)
	b.compare()
	return b
}

func (b *backupSoak) command(args ...string) *exec.Cmd {
	return exec.CommandContext(b.t.Context(), b.binary, append(args, "--config", b.config)...)
}

// backup runs to its end, and returns the exit code and the output.
func (b *backupSoak) backup() (int, string) {
	b.t.Helper()
	cmd := b.command("backup")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		b.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

// killed starts a backup and kills it, unless it ends before.
func (b *backupSoak) killed(round int) {
	b.t.Helper()
	cmd := b.command("backup")
	before := b.written()
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // killed, or how it ended does not matter
	}()
	var writes <-chan struct{}
	moment := time.Duration(b.rng.Int64N(int64(b.took) * 5 / 4))
	late := time.Duration(b.rng.IntN(40)) * time.Millisecond
	if round%2 == 1 {
		writes, moment = b.untilWritten(before, ended), time.Minute
	}
	select {
	case <-time.After(moment):
	case <-ended:
	case <-writes:
		b.writing++
		select {
		case <-time.After(late):
		case <-ended:
		}
	}
	select {
	case <-ended:
		b.finished++
	default:
		b.kills++
		_ = cmd.Process.Kill() // it may just have ended
		<-ended
	}
}

// untilWritten closes the channel that it returns when something in the
// repository's git folder is not as it was before.
func (b *backupSoak) untilWritten(before string, ended <-chan struct{}) <-chan struct{} {
	written := make(chan struct{})
	go func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ended:
				return
			case <-tick.C:
				if b.written() != before {
					close(written)
					return
				}
			}
		}
	}()
	return written
}

// written tells when files came to, or went from, the folders that a backup writes to.
func (b *backupSoak) written() string {
	var times string
	for _, dir := range []string{"objects/pack", "refs/heads", "."} {
		if info, err := os.Stat(filepath.Join(b.repo, ".git", dir)); err == nil {
			times += info.ModTime().String()
		}
	}
	return times
}

// inPeace runs a backup that nobody disturbs, and another when deletions had to
// be approved, and looks at what came of it.
func (b *backupSoak) inPeace() {
	b.t.Helper()
	for range 3 {
		code, out := b.backup()
		b.people.fetch()
		digest := b.people.held()
		if code == exitDone && digest == "" {
			b.compare()
			return
		}
		if code != exitDifferences || digest == "" {
			b.t.Fatalf("backup after a kill: exit code %d\n%s", code, out)
		}
		if out, err := b.command("approve", digest).CombinedOutput(); err != nil {
			b.t.Fatalf("approve %s: %v\n%s", digest, err, out)
		}
	}
	b.t.Fatal("what was approved is held again and again")
}

// compare holds the repository, as git sees it, against the cluster.
func (b *backupSoak) compare() {
	b.t.Helper()
	gittest.Fsck(b.t, b.repo)
	if status := gittest.Git(b.t, b.repo, "status", "--porcelain"); status != "" {
		b.t.Fatalf("git status:\n%s", status)
	}
	b.people.fetch()
	if differences := b.people.compare(b.cluster.files()); differences != "" {
		b.t.Fatalf("the repository differs from the cluster:\n%s", differences)
	}
}
