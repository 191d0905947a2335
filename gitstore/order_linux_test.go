package gitstore

import (
	"encoding/binary"
	"errors"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// renames is told by the kernel which files get their names below a git folder.
type renames struct {
	t  *testing.T
	fd int
}

func watchRenames(t *testing.T, repo string) *renames {
	t.Helper()
	fd, err := syscall.InotifyInit1(syscall.IN_NONBLOCK | syscall.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Close(fd); err != nil {
			t.Error(err)
		}
	})
	for _, dir := range []string{"", "objects/pack", "refs/heads"} {
		if _, err := syscall.InotifyAddWatch(fd, filepath.Join(repo, dir), syscall.IN_MOVED_TO); err != nil {
			t.Fatal(err)
		}
	}
	return &renames{t, fd}
}

// seen returns the names since the last call, in order; a pack's sum is left out.
func (r *renames) seen() []string {
	r.t.Helper()
	sum := regexp.MustCompile(`-[0-9a-f]{40}`)
	var names []string
	buf := make([]byte, 1<<16)
	for {
		n, err := syscall.Read(r.fd, buf)
		if errors.Is(err, syscall.EAGAIN) {
			return names
		}
		if err != nil {
			r.t.Fatal(err)
		}
		for b := buf[:n]; len(b) > 0; {
			end := syscall.SizeofInotifyEvent + binary.NativeEndian.Uint32(b[12:])
			name := strings.TrimRight(string(b[syscall.SizeofInotifyEvent:end]), "\x00")
			names = append(names, sum.ReplaceAllString(name, ""))
			b = b[end:]
		}
	}
}

// TestOrderOfNames: a pack gets its name before its index, which lets readers
// see it, both before the ref that needs them, and what git or the next start
// must know of a commit before there is one.
func TestOrderOfNames(t *testing.T) {
	bare := bareRepo(t)
	cache := filepath.Join(t.TempDir(), "cache")
	s := open(t, Options{URL: bare, Dir: cache})
	fetch(t, s)
	r := watchRenames(t, filepath.Join(cache, "repo.git"))
	for _, content := range []string{"1", "2"} {
		commit(t, s, content, put("a", content))
		if diff := cmp.Diff([]string{"pack.pack", "pack.idx", "main"}, r.seen()); diff != "" {
			t.Errorf("commit in a cache (-want +got):\n%s", diff)
		}
	}
	push(t, s)

	second := filepath.Join(t.TempDir(), "second")
	s = open(t, Options{URL: bare, Dir: second})
	r = watchRenames(t, filepath.Join(second, "repo.git"))
	fetch(t, s)
	if diff := cmp.Diff([]string{"shallow", "pack.pack", "pack.idx", "main"}, r.seen()); diff != "" {
		t.Errorf("fetch (-want +got):\n%s", diff)
	}

	own := filepath.Join(t.TempDir(), "own")
	s = open(t, Options{Dir: own})
	r = watchRenames(t, filepath.Join(own, ".git"))
	commit(t, s, "1", put("a", "1"))
	if diff := cmp.Diff([]string{"pack.pack", "pack.idx", packsFile, behindFile, "main"}, r.seen()); diff != "" {
		t.Errorf("commit in a person's repository (-want +got):\n%s", diff)
	}
}
