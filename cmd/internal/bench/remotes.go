package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/crmirror/crmirror/gitstore/gittest"
)

// origins are bare repositories of the same files behind one server, made once
// per run.
type origins struct {
	dir     string
	server  *gittest.HTTP
	files   int
	folders int
	commits int
	one     string // the name of the one whose history is one commit
	many    string // of the one with so many commits on top of that
	copies  int
}

// remotes makes the repositories at the first call.
func (b *bench) remotes(ctx context.Context) (*origins, error) {
	if b.origins != nil {
		return b.origins, nil
	}
	o := &origins{files: b.size(100_000, 10_000), folders: b.size(1000, 100), commits: b.size(10_000, 1_000), one: "one.git", many: "many.git"}
	var err error
	if o.dir, o.server, err = b.server(); err != nil {
		return nil, err
	}
	if err := importFiles(ctx, o.path(o.one), files(o.files, o.folders)); err != nil {
		return nil, err
	}
	if err := o.copyTo(o.one, o.many); err != nil {
		return nil, err
	}
	if err := o.history(ctx, o.path(o.many), o.commits); err != nil {
		return nil, err
	}
	b.origins = o
	return o, nil
}

func (o *origins) path(name string) string { return filepath.Join(o.dir, name) }

func (o *origins) copyTo(from, to string) error {
	return os.CopyFS(o.path(to), os.DirFS(o.path(from)))
}

// copyOf makes a repository for one measurement that changes it.
func (o *origins) copyOf(name string) (string, error) {
	o.copies++
	to := fmt.Sprintf("copy-%02d.git", o.copies)
	return to, o.copyTo(name, to)
}

// history adds commits that each change one line of one file.
func (o *origins) history(ctx context.Context, bare string, commits int) error {
	read, write := io.Pipe()
	go func() {
		var err error
		for i := range commits {
			if err = o.change(write, i, i == 0); err != nil {
				break
			}
		}
		_ = write.CloseWithError(err) // never fails
	}()
	_, err := gittest.RunInput(ctx, bare, read, "-c", "fastimport.unpackLimit=1", "fast-import", "--quiet")
	return errors.Join(err, read.Close())
}

// change writes the stream of the i-th commit, of one file, on main.
func (o *origins) change(w io.Writer, i int, first bool) error {
	from := ""
	if first {
		from = "from refs/heads/main^0\n"
	}
	path, content := o.changed(i)
	_, err := fmt.Fprintf(w, "commit refs/heads/main\ncommitter Bench <bench@example.com> %d +0000\ndata 3\none\n%sM 100644 inline %s\ndata %d\n%s\n",
		time.Now().Unix(), from, path, len(content), content)
	return err
}

// changed is what the i-th commit makes of one of the files.
func (o *origins) changed(i int) (path string, content []byte) {
	n := i * 7919 % o.files
	return filePath(n, o.folders), fileContent(n, i+1)
}
