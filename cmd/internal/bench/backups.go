package main

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/crmirror/crmirror/gitstore/gittest"
	"github.com/crmirror/crmirror/kube/kubetest"
)

// backups measures one-shots: the program as a user calls it, against reading the
// same objects and putting the same files into a repository without it.
type backups struct {
	b       *bench
	cluster *kubetest.Cluster
	program string
	remotes string // the folder that git serves
	git     *gittest.HTTP

	files  []file // what a backup writes
	stream string // the same for "git fast-import"
}

// backup measures the first backup of everything to a pushed commit, and one with
// nothing changed since.
func backup(ctx context.Context, b *bench) error {
	s := &backups{b: b}
	if err := s.prepare(ctx); err != nil {
		return err
	}
	var list, off, on, again, toGit, toDisk, cpu, listCPU []float64
	for range b.runs {
		reference, err := s.list(ctx)
		if err != nil {
			return err
		}
		imported, err := s.importAndPush(ctx)
		if err != nil {
			return err
		}
		written, err := s.writeFiles()
		if err != nil {
			return err
		}
		list, listCPU = append(list, reference.wall), append(listCPU, reference.cpu)
		toGit, toDisk = append(toGit, reference.wall+imported), append(toDisk, reference.wall+imported+written)
		first, second, err := s.backups(ctx, false)
		if err != nil {
			return err
		}
		off, cpu, again = append(off, first.wall), append(cpu, first.cpu), append(again, second.wall)
		if first, _, err = s.backups(ctx, true); err != nil {
			return err
		}
		on = append(on, first.wall)
	}
	n := b.objects()
	b.add(fmt.Sprintf("first backup of %d objects, pushed (LIST + fast-import + push)", n), "s", 1.2, off, toGit)
	b.add(fmt.Sprintf("first backup of %d objects, pushed, worktree written (the same + writing the files)", n), "s", 1.2, on, toDisk)
	b.add(fmt.Sprintf("backup of %d objects with nothing changed (LIST)", n), "s", 1.3, again, list)
	b.add("CPU of the first backup (of the LIST alone)", "s", 0, cpu, listCPU)
	return nil
}

// prepare makes everything that is not measured. A backup that does not count
// warms the API server up and says what the files are.
func (s *backups) prepare(ctx context.Context) (err error) {
	if s.cluster, err = s.b.cluster(ctx); err != nil {
		return err
	}
	if s.program, err = s.b.binary(ctx); err != nil {
		return err
	}
	if s.remotes, s.git, err = s.b.server(); err != nil {
		return err
	}
	bare, err := s.remote(ctx, "warm")
	if err != nil {
		return err
	}
	if _, err := s.run(ctx, bare, false); err != nil {
		return err
	}
	if s.files, err = filesOf(ctx, bare); err != nil {
		return err
	}
	s.stream = filepath.Join(s.b.dir, "backup.stream")
	return fastImport(s.stream, s.files, "")
}

// remote makes an empty bare repository that git serves.
func (s *backups) remote(ctx context.Context, name string) (string, error) {
	s.b.made++
	bare := filepath.Join(s.remotes, fmt.Sprintf("%03d-%s.git", s.b.made, name))
	return bare, gittest.InitBare(ctx, bare, "main")
}

// url is where a bare repository is served.
func (s *backups) url(bare string) string { return s.git.URL(filepath.Base(bare)) }

// backups is a first backup to a new remote with an empty cache, and a second one
// right after it, with nothing changed.
func (s *backups) backups(ctx context.Context, worktree bool) (first, second used, err error) {
	bare, err := s.remote(ctx, "ours")
	if err != nil {
		return first, second, err
	}
	if first, err = s.run(ctx, bare, worktree); err != nil {
		return first, second, err
	}
	head, err := gittest.Run(ctx, bare, "rev-parse", "main")
	if err != nil {
		return first, second, err
	}
	if second, err = s.run(ctx, bare, worktree); err != nil {
		return first, second, err
	}
	if now, err := gittest.Run(ctx, bare, "rev-parse", "main"); err != nil || now != head {
		return first, second, errors.Join(err, errors.New("the second backup found something to commit"))
	}
	return first, second, nil
}

// run runs "crmirror backup" once. A remote's cache lies beside it.
func (s *backups) run(ctx context.Context, bare string, worktree bool) (used, error) {
	config := bare + ".yaml"
	content := fmt.Sprintf("apiVersion: crmirror.dev/v1alpha1\nkind: Config\ncluster: bench\ncacheDir: %s\nrepository: {url: %q, worktree: %t}\n",
		bare+".cache", s.url(bare), worktree)
	if err := os.WriteFile(config, []byte(content), 0o666); err != nil {
		return used{}, err
	}
	return finish(exec.CommandContext(ctx, s.program, "backup", "--config", config, "--kubeconfig", s.cluster.Kubeconfig))
}

// list is the reference for reading: a process of its own, as ours is one.
func (s *backups) list(ctx context.Context) (used, error) {
	self, err := os.Executable()
	if err != nil {
		return used{}, err
	}
	return finish(exec.CommandContext(ctx, self, childFlag, "list", s.cluster.Kubeconfig))
}

// listChild lists everything in the cluster of a kubeconfig.
func listChild(ctx context.Context, args []string) (map[string]float64, error) {
	config, err := clientcmd.BuildConfigFromFlags("", args[0])
	if err != nil {
		return nil, err
	}
	n, err := listAll(ctx, config)
	return map[string]float64{"objects": float64(n)}, err
}

// importAndPush is the reference for writing, in seconds.
func (s *backups) importAndPush(ctx context.Context) (float64, error) {
	local, err := s.remote(ctx, "import")
	if err != nil {
		return 0, err
	}
	bare, err := s.remote(ctx, "reference")
	if err != nil {
		return 0, err
	}
	begin := time.Now()
	if err := feedImport(ctx, local, s.stream); err != nil {
		return 0, err
	}
	_, err = gittest.Run(ctx, local, "push", "--quiet", s.url(bare), "main")
	return time.Since(begin).Seconds(), err
}

// writeFiles is the reference for a worktree, in seconds.
func (s *backups) writeFiles() (float64, error) {
	dir, err := s.b.folder("files")
	if err != nil {
		return 0, err
	}
	begin := time.Now()
	for _, f := range s.files {
		name := filepath.Join(dir, f.path)
		if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
			return 0, err
		}
		if err := os.WriteFile(name, f.content, 0o666); err != nil {
			return 0, err
		}
	}
	return time.Since(begin).Seconds(), nil
}

// filesOf reads all files of a repository's main.
func filesOf(ctx context.Context, bare string) ([]file, error) {
	archive, err := gittest.Run(ctx, bare, "archive", "--format=tar", "main")
	if err != nil {
		return nil, err
	}
	var list []file
	for r := tar.NewReader(strings.NewReader(archive)); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return list, nil
		}
		if err != nil {
			return nil, err
		}
		if header.Typeflag != tar.TypeReg {
			continue
		}
		content, err := io.ReadAll(r)
		if err != nil {
			return nil, err
		}
		list = append(list, file{header.Name, content})
	}
}
