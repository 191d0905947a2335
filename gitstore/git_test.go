package gitstore

import (
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"net/http"
)

// git runs the git command line in dir and returns what it printed.
func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	out, err := tryGit(t, dir, args...)
	if err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func tryGit(t *testing.T, dir string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(),
		"GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0", "GIT_EDITOR=true",
		"GIT_AUTHOR_NAME=Ann", "GIT_AUTHOR_EMAIL=ann@example.com", "GIT_COMMITTER_NAME=Ann", "GIT_COMMITTER_EMAIL=ann@example.com",
	)
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// bareRepo makes an empty repository that takes the role of the remote.
func bareRepo(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "remote.git")
	git(t, t.TempDir(), "init", "-q", "--bare", "-b", "main", dir)
	git(t, dir, "config", "http.receivepack", "true")
	return dir
}

const token = "s3cret-token"

// serveHTTP serves a bare repository over smart HTTP, with a token, and
// returns its URL and a file with the token.
func serveHTTP(t *testing.T, bare string) (url, tokenFile string) {
	t.Helper()
	execPath := git(t, bare, "--exec-path")
	backend := &cgi.Handler{
		Path: filepath.Join(execPath, "git-http-backend"),
		Env:  []string{"GIT_PROJECT_ROOT=" + filepath.Dir(bare), "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=ann"},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, password, _ := r.BasicAuth(); password != token {
			w.Header().Set("WWW-Authenticate", "Basic")
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		backend.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	tokenFile = filepath.Join(t.TempDir(), "token")
	writeFile(t, tokenFile, token+"\n")
	return server.URL + "/" + filepath.Base(bare), tokenFile
}

func writeFile(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func open(t *testing.T, o Options) *Store {
	t.Helper()
	o.LockWait = 200 * time.Millisecond
	s, err := Open(t.Context(), o)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

func fetch(t *testing.T, s *Store) {
	t.Helper()
	if err := s.Fetch(t.Context()); err != nil {
		t.Fatalf("Fetch: %v", err)
	}
}

func push(t *testing.T, s *Store) {
	t.Helper()
	if err := s.Push(t.Context()); err != nil {
		t.Fatalf("Push: %v", err)
	}
}

var when = time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)

// put is an edit that writes a file.
func put(path, content string) Edit { return Edit{Path: path, Content: []byte(content)} }

func commit(t *testing.T, s *Store, message string, edits ...Edit) Hash {
	t.Helper()
	h, err := s.Commit(t.Context(), Commit{Edits: edits, Message: message, When: when})
	if err != nil {
		t.Fatalf("Commit %s: %v", message, err)
	}
	return h
}

// cloneFiles clones a remote with git, checks it with fsck, and returns its
// files by path.
func cloneFiles(t *testing.T, url string) map[string]string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "clone")
	git(t, t.TempDir(), "clone", "-q", url, dir)
	git(t, dir, "fsck", "--strict", "--full")
	return diskFiles(t, dir)
}

func diskFiles(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.Name() == ".git" {
			if e.IsDir() {
				return filepath.SkipDir
			}
			return nil
		}
		if e.IsDir() {
			return nil
		}
		rel, err := filepath.Rel(dir, path)
		files[filepath.ToSlash(rel)] = readFile(t, path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
