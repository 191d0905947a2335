// Package gitstore keeps files in a branch of a git repository: paths and
// bytes in, hashes and changes out. It commits from memory at a cost that
// follows the change, pushes exactly what the remote lacks, and survives being
// killed at any point. It knows neither YAML nor Kubernetes.
package gitstore

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/crmirror/crmirror/gitstore/object"
	"github.com/crmirror/crmirror/gitstore/refs"
	"github.com/crmirror/crmirror/gitstore/remote"
)

// Hash is an object's name; the zero hash stands for an absent one.
type Hash = object.Hash

// Auth says how to prove who we are to a remote.
type Auth = remote.Auth

// Identity is who commits are by.
type Identity struct{ Name, Email string }

// Options say where a Store lies and what it talks to.
type Options struct {
	// URL is the remote: ssh://, git@host:path, https://, http:// or file://.
	// Empty when Dir is a person's own repository.
	URL string
	// Dir is, with a URL, the folder of our cache: the clone in Dir/repo.git,
	// a worktree in Dir/worktree. Without one it is the repository itself,
	// bare or not, created when missing.
	Dir string
	// Branch is a branch's short name. Empty takes the remote's default
	// branch or what the repository's HEAD says, and "main" where there is none.
	Branch string
	// Path is a slash path below which the caller's files lie; empty for the whole tree.
	Path string
	// Refs are full names of further refs to fetch and keep.
	Refs []string
	// History fetches, with a URL, the branch's whole history, without file contents where
	// the server allows: for callers that ask Descends.
	History bool
	// Worktree keeps, with a URL, a worktree at Dir/worktree.
	Worktree bool
	// Shared opens a person's own repository beside another crmirror that works in
	// it: for SetRef, which git's own locks protect, and for reading.
	Shared bool
	Auth   Auth
	// Author is who commits are by; empty fields take "crmirror" and "crmirror@localhost".
	Author Identity
	// Timeout is how long the remote may be silent within a network operation;
	// zero means 2m. What moves bytes may take longer.
	Timeout time.Duration
	// LockWait bounds how long another git process's lock is waited for; zero means 10s.
	LockWait time.Duration
	// Log is told what was repaired; nil is silent.
	Log logrus.FieldLogger
}

// complete fills in what zero stands for and checks the rest.
func (o Options) complete() (Options, error) {
	if o.Dir == "" {
		return o, fmt.Errorf("open store: no folder given")
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return o, fmt.Errorf("open store %s: %w", o.Dir, err)
	}
	o.Dir = dir
	o.Path = strings.Trim(o.Path, "/")
	if o.Path != "" {
		if err := checkPath(o.Path); err != nil {
			return o, fmt.Errorf("open store: repository path: %w", err)
		}
	}
	if o.Branch != "" && !refs.ValidName(branchRef(o.Branch)) {
		return o, fmt.Errorf("open store: %q is no name for a branch", o.Branch)
	}
	for _, name := range o.Refs {
		if !refs.ValidName(name) {
			return o, fmt.Errorf("open store: %q is no full name of a ref", name)
		}
	}
	if o.Author.Name == "" {
		o.Author.Name = "crmirror"
	}
	if o.Author.Email == "" {
		o.Author.Email = "crmirror@localhost"
	}
	if o.LockWait == 0 {
		o.LockWait = 10 * time.Second
	}
	if o.Log == nil {
		silent := logrus.New()
		silent.SetOutput(io.Discard)
		o.Log = silent
	}
	return o, nil
}

func branchRef(short string) string { return "refs/heads/" + short }

// checkPath refuses what cannot or must not be a path in a tree.
func checkPath(path string) error {
	for name := range strings.SplitSeq(path, "/") {
		switch {
		case name == "" || name == "." || name == "..":
			return fmt.Errorf("path %q: empty, . and .. are no names", path)
		case strings.EqualFold(name, ".git"):
			return fmt.Errorf("path %q: .git is git's own", path)
		case strings.ContainsAny(name, "\x00\n\\"):
			return fmt.Errorf("path %q: it has a byte that is not safe in a file name", path)
		}
	}
	return nil
}
