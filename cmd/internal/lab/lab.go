// Package lab runs everything that crmirror needs to be tried: one or two real
// API servers, a git server over HTTP and ssh with an empty repository, and
// custom resources loaded from folders. crlab, the demo and the end-to-end tests
// stand on it.
package lab

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/crmirror/crmirror/gitstore/gittest"
	"github.com/crmirror/crmirror/kube/kubetest"
	"github.com/crmirror/crmirror/kube/kubetest/reaper"
)

// repository is the path of the lab's repository below its git folder, and so
// the path in the remote's address.
const repository = "lab.git"

// Options say what a lab has.
type Options struct {
	// Dir keeps everything, the file env included. Empty means a new temporary
	// folder, which goes as a whole; in any other, files of others stay.
	Dir string
	// Load names folders of manifests for the first cluster.
	Load []string
	// Clusters is the number of API servers, 1 or 2; 0 means 1. The second is empty.
	Clusters int
	// Keep leaves the files at Stop, with the repository and the servers' logs.
	Keep bool
	// Progress is told what the lab is doing, one line at a time; nil for nobody.
	Progress func(line string)
}

// Lab is a running lab. It stops with the process at the latest, however that
// ends, and takes its files along unless they are to be kept.
type Lab struct {
	Dir      string
	Clusters []*kubetest.Cluster
	HTTP     *gittest.HTTP
	SSH      *gittest.SSH
	// Loaded tells what was loaded from each folder of Options.Load.
	Loaded []*kubetest.Report

	options Options
	madeDir bool // the folder was not there before
	reaper  *reaper.Reaper
	stop    sync.Once
	stopErr error
}

// Start starts a lab and returns when everything answers and is loaded. The file
// env is written last: who finds it finds a lab that is ready.
func Start(ctx context.Context, options Options) (_ *Lab, err error) {
	if options.Clusters == 0 {
		options.Clusters = 1
	}
	if options.Progress == nil {
		options.Progress = func(string) {}
	}
	if err := checkLoad(options.Load); err != nil {
		return nil, err
	}
	l := &Lab{options: options}
	if err := l.prepareDir(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.Stop())
		}
	}()
	if err := l.startGit(ctx); err != nil {
		return nil, err
	}
	for range options.Clusters {
		if err := l.startCluster(ctx); err != nil {
			return nil, err
		}
	}
	for _, dir := range options.Load {
		if err := l.load(ctx, dir); err != nil {
			return nil, err
		}
	}
	return l, l.writeEnv()
}

// Stop stops everything and removes the files unless they are to be kept. It may
// be called more than once, and returns the same error each time.
func (l *Lab) Stop() error {
	l.stop.Do(func() {
		var errs []error
		for _, cluster := range l.Clusters {
			errs = append(errs, cluster.Stop())
		}
		if l.HTTP != nil {
			l.HTTP.Close()
		}
		if l.SSH != nil {
			errs = append(errs, l.SSH.Close())
		}
		// Last: it removes the files of all the others.
		errs = append(errs, l.reaper.Close())
		if l.madeDir {
			_ = os.Remove(l.Dir) // it stays if somebody put something into it
		}
		l.stopErr = errors.Join(errs...)
	})
	return l.stopErr
}

// checkLoad finds a mistyped folder before the servers are started.
func checkLoad(dirs []string) error {
	var errs []error
	for _, dir := range dirs {
		if _, err := os.Stat(dir); err != nil {
			errs = append(errs, fmt.Errorf("load %s: %w", dir, errors.Unwrap(err)))
		}
	}
	return errors.Join(errs...)
}

// prepareDir creates the folder and makes sure that it goes with us.
func (l *Lab) prepareDir() error {
	if l.options.Dir == "" {
		dir, err := os.MkdirTemp("", "crmirror-lab-")
		if err != nil {
			return fmt.Errorf("create folder of the lab: %w", err)
		}
		return l.own(dir, []string{dir})
	}
	dir, err := filepath.Abs(l.options.Dir)
	if err != nil {
		return fmt.Errorf("create folder of the lab: %w", err)
	}
	var ours []string
	for _, name := range l.entries() {
		path := filepath.Join(dir, name)
		if _, err := os.Lstat(path); err == nil {
			return fmt.Errorf("start lab in %s: %s is there already, from a lab that runs or was kept; "+
				"stop it, remove the folder, or give another --dir", dir, name)
		}
		ours = append(ours, path)
	}
	_, err = os.Stat(dir)
	l.madeDir = errors.Is(err, os.ErrNotExist)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("create folder of the lab: %w", err)
	}
	return l.own(dir, ours)
}

// own puts files under the reaper.
func (l *Lab) own(dir string, files []string) (err error) {
	l.Dir = dir
	if l.options.Keep {
		files = nil
	}
	l.reaper, err = reaper.New(files...)
	return err
}

// entries are the names of all files that a lab writes into its folder.
func (l *Lab) entries() []string {
	names := []string{"env", "git", "keys", "token"}
	for i := range l.options.Clusters {
		names = append(names, clusterName(i), kubeconfigName(i))
	}
	return names
}

func clusterName(i int) string { return fmt.Sprintf("cluster-%d", i+1) }

func kubeconfigName(i int) string {
	if i == 0 {
		return "kubeconfig"
	}
	return fmt.Sprintf("kubeconfig-%d", i+1)
}

func (l *Lab) startGit(ctx context.Context) error {
	git, keys := filepath.Join(l.Dir, "git"), filepath.Join(l.Dir, "keys")
	for _, dir := range []string{git, keys} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return fmt.Errorf("create folder of the lab: %w", err)
		}
	}
	if err := gittest.InitBare(ctx, l.RemoteDir(), "main"); err != nil {
		return fmt.Errorf("create repository: %w", err)
	}
	token := rand.Text()
	if err := os.WriteFile(l.tokenFile(), []byte(token), 0o600); err != nil {
		return fmt.Errorf("write token: %w", err)
	}
	var err error
	if l.HTTP, err = gittest.NewHTTP(git, token); err != nil {
		return err
	}
	if l.SSH, err = gittest.NewSSH(git, keys); err != nil {
		return err
	}
	l.progress("git server: %s and %s, an empty repository", l.RemoteHTTP(), l.RemoteSSH())
	return nil
}

func (l *Lab) startCluster(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	i := len(l.Clusters)
	l.progress("starting etcd and kube-apiserver (%d of %d), some ten seconds", i+1, l.options.Clusters)
	cluster, err := kubetest.Start(ctx, kubetest.Options{
		Dir:  filepath.Join(l.Dir, clusterName(i)),
		Keep: l.options.Keep,
	})
	if err != nil {
		return err
	}
	l.Clusters = append(l.Clusters, cluster)
	content, err := os.ReadFile(cluster.Kubeconfig)
	if err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	if err := os.WriteFile(l.Kubeconfig(i), content, 0o600); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	l.progress("kube-apiserver answers at %s", strings.TrimSuffix(cluster.Config.Host, "/"))
	return nil
}

func (l *Lab) load(ctx context.Context, dir string) error {
	l.progress("loading %s", dir)
	report, err := kubetest.Load(ctx, l.Clusters[0].Config, dir)
	if err != nil {
		return fmt.Errorf("load %s: %w", dir, err)
	}
	l.Loaded = append(l.Loaded, report)
	l.progress("loaded %d CRDs and %d objects%s", report.CRDs, len(report.Objects), refusedNote(report))
	for _, refusal := range report.Refused {
		l.progress("refused: %s", firstLine(refusal.String()))
	}
	return nil
}

func refusedNote(report *kubetest.Report) string {
	var note string
	if n := len(report.Refused); n > 0 {
		note += fmt.Sprintf(", %d refused by the server", n)
	}
	if n := len(report.StatusRefused); n > 0 {
		note += fmt.Sprintf(", %d without their status, which the server refused", n)
	}
	return note
}

// firstLine cuts what a server says of a large object to what a terminal shows.
func firstLine(text string) string {
	const width = 300
	text, _, _ = strings.Cut(text, "\n")
	if len(text) > width {
		return strings.ToValidUTF8(text[:width], "") + "…"
	}
	return text
}

func (l *Lab) progress(format string, args ...any) {
	l.options.Progress(fmt.Sprintf(format, args...))
}
