package gitstore

import (
	"errors"
	"strings"
	"testing"
)

// TestPushTarget: a person's repository pushes where git push would, or says
// by name what is not followed.
func TestPushTarget(t *testing.T) {
	tests := []struct {
		name string
		make func(t *testing.T, dir, second string)
		to   int    // 0 origin, 1 the second remote, 2 nowhere
		says string // of Open's error, "" for none
	}{
		{"the upstream", func(*testing.T, string, string) {}, 0, ""},
		{"a pushurl", func(t *testing.T, dir, second string) {
			git(t, dir, "remote", "set-url", "--push", "origin", second)
		}, 1, ""},
		{"the branch's pushRemote", func(t *testing.T, dir, second string) {
			git(t, dir, "remote", "add", "second", second)
			git(t, dir, "config", "branch.main.pushRemote", "second")
			git(t, dir, "config", "remote.pushDefault", "origin")
		}, 1, ""},
		{"pushDefault", func(t *testing.T, dir, second string) {
			git(t, dir, "remote", "add", "second", second)
			git(t, dir, "config", "remote.pushDefault", "second")
		}, 1, ""},
		{"no remote", func(t *testing.T, dir, _ string) { git(t, dir, "remote", "remove", "origin") }, 2, ""},
		{"a pushRemote that is not there", func(t *testing.T, dir, _ string) {
			git(t, dir, "config", "branch.main.pushRemote", "third")
		}, 2, "branch.main.pushRemote is third"},
		{"insteadOf", func(t *testing.T, dir, second string) {
			git(t, dir, "config", "url."+second+".insteadOf", git(t, dir, "remote", "get-url", "origin"))
		}, 2, "insteadOf"},
		{"pushInsteadOf", func(t *testing.T, dir, second string) {
			git(t, dir, "config", "url."+second+".pushInsteadOf", git(t, dir, "remote", "get-url", "origin"))
		}, 2, "pushInsteadOf"},
		{"insteadOf of another URL", func(t *testing.T, dir, second string) {
			git(t, dir, "config", "url."+second+".insteadOf", "https://elsewhere/")
		}, 0, ""},
		{"two URLs", func(t *testing.T, dir, second string) {
			git(t, dir, "remote", "set-url", "--add", "origin", second)
		}, 2, "2 URLs"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			first, dir := ownClone(t)
			second := bareRepo(t)
			tt.make(t, dir, second)
			s, err := Open(t.Context(), Options{Dir: dir, Path: "p"})
			if tt.says != "" {
				if !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), tt.says) {
					t.Fatalf("Open: %v, want one that says %q", err, tt.says)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			h := commit(t, s, "ours", put("a", "1\n"))
			push(t, s)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			for i, bare := range []string{first, second} {
				got, _ := tryGit(t, bare, "rev-parse", "-q", "--verify", "main")
				if (got == h.String()) != (i == tt.to) {
					t.Errorf("remote %d has %q, ours is %s", i, got, h)
				}
			}
		})
	}
}
