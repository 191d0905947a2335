package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/crmirror/crmirror/gitstore/gittest"
)

// file is one file of a repository.
type file struct {
	path    string
	content []byte
}

// fileContent is the i-th file's content in its so-manieth revision, about 2 KB
// of YAML. A revision changes one line.
func fileContent(i, revision int) []byte {
	var b strings.Builder
	_, namespace, name := place(i)
	fmt.Fprintf(&b, "apiVersion: %s/v1\nkind: Widget%02d\nmetadata:\n  labels:\n    app.kubernetes.io/part-of: part-%d\n  name: %s\n  namespace: %s\nspec:\n", group, i%kinds, i%13, name, namespace)
	for field := 0; b.Len() < 2000; field++ {
		fmt.Fprintf(&b, "  field%04d: value-%d for the object %d\n", field, field, i*7919%100003)
	}
	fmt.Fprintf(&b, "  revision: %d\n", revision)
	return []byte(b.String())
}

// files are n files of about 2 KB over so many folders.
func files(n, folders int) []file {
	list := make([]file, n)
	for i := range list {
		list[i] = file{filePath(i, folders), fileContent(i, 0)}
	}
	return list
}

// filePath is where the i-th file lies among so many folders.
func filePath(i, folders int) string { return fmt.Sprintf("folder-%04d/file-%06d.yaml", i%folders, i) }

// fastImport writes the stream of one commit on main that has these files, on
// top of parent ("" for none), for "git fast-import". Everything goes into one
// pack, as it does for us.
func fastImport(name string, list []file, parent string) (err error) {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := bufio.NewWriterSize(f, 1<<20)
	const message = "all"
	fmt.Fprintf(w, "commit refs/heads/main\ncommitter Bench <bench@example.com> %d +0000\ndata %d\n%s\n", time.Now().Unix(), len(message), message)
	if parent != "" {
		fmt.Fprintf(w, "from %s\n", parent)
	}
	for _, file := range list {
		fmt.Fprintf(w, "M 100644 inline %s\ndata %d\n%s\n", file.path, len(file.content), file.content)
	}
	return w.Flush()
}

// importFiles makes a bare repository that has these files in one commit on main.
func importFiles(ctx context.Context, bare string, list []file) error {
	if err := gittest.InitBare(ctx, bare, "main"); err != nil {
		return err
	}
	stream := bare + ".stream"
	if err := fastImport(stream, list, ""); err != nil {
		return err
	}
	return feedImport(ctx, bare, stream)
}

// feedImport runs "git fast-import" on a stream.
func feedImport(ctx context.Context, repository, stream string, options ...string) (err error) {
	in, err := os.Open(stream)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	// Small imports become a pack too: that is what is compared.
	args := append([]string{"-c", "fastimport.unpackLimit=1", "fast-import", "--quiet"}, options...)
	_, err = gittest.RunInput(ctx, repository, in, args...)
	return err
}

// server serves the bare repositories below a folder over HTTP until the
// benchmarks end.
func (b *bench) server() (dir string, s *gittest.HTTP, err error) {
	if dir, err = b.folder("remotes"); err != nil {
		return "", nil, err
	}
	if s, err = gittest.NewHTTP(dir, ""); err != nil {
		return "", nil, err
	}
	b.cleanup(func() error { s.Close(); return nil })
	return dir, s, nil
}

// packBytes is the size of all packs of a repository.
func packBytes(gitDir string) (float64, error) {
	names, err := filepath.Glob(filepath.Join(gitDir, "objects", "pack", "*.pack"))
	if err != nil {
		return 0, err
	}
	var total int64
	for _, name := range names {
		info, err := os.Stat(name)
		if err != nil {
			return 0, err
		}
		total += info.Size()
	}
	return float64(total), nil
}
