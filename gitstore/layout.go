package gitstore

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-git/go-git/v5/config"
	format "github.com/go-git/go-git/v5/plumbing/format/config"

	"github.com/crmirror/crmirror/gitstore/odb"
)

// layout is where the parts of a repository lie.
type layout struct {
	git    string // HEAD, index
	common string // objects, refs, config; equal to git but in a linked worktree
	work   string // the worktree, "" for none
	own    bool   // a person's: never repaired, re-created or unlocked
}

// cacheLayout is where a URL's clone lies below its folder.
func cacheLayout(o Options) layout {
	l := layout{git: filepath.Join(o.Dir, "repo.git")}
	l.common = l.git
	if o.Worktree {
		l.work = filepath.Join(o.Dir, "worktree")
	}
	return l
}

// findLayout looks at what lies at a plain path. found is false when nothing
// does, and a repository can be made there.
func findLayout(dir string) (l layout, found bool, err error) {
	l = layout{git: filepath.Join(dir, ".git"), common: filepath.Join(dir, ".git"), work: dir, own: true}
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return l, false, nil
	case err != nil:
		return l, false, fmt.Errorf("open repository %s: %w", dir, err)
	case !info.IsDir():
		return l, false, fmt.Errorf("open repository %s: it is a file; give the path of a repository, or of a folder to be made one", dir)
	}
	dotGit, err := os.Stat(l.git)
	switch {
	case err == nil && dotGit.IsDir():
		unfinished, err := l.unfinished()
		return l, !unfinished, err
	case err == nil:
		return linkedLayout(l)
	case !errors.Is(err, fs.ErrNotExist):
		return l, false, fmt.Errorf("open repository %s: %w", dir, err)
	}
	if isGitDir(dir) {
		return layout{git: dir, common: dir, own: true}, true, nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return l, false, fmt.Errorf("open repository %s: %w", dir, err)
	}
	if len(entries) > 0 {
		return l, false, notARepository(dir)
	}
	return l, false, nil
}

// unfinished tells a repository that a process was killed while it made it: its
// HEAD, which is written last, is not there or is empty, and nothing is in it.
func (l layout) unfinished() (bool, error) {
	head, err := os.ReadFile(filepath.Join(l.git, "HEAD"))
	if len(head) > 0 || err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	beside, err := os.ReadDir(l.work)
	if err != nil || len(beside) > 1 {
		return false, err
	}
	empty := true
	err = filepath.WalkDir(l.git, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		switch filepath.Dir(path) {
		case l.git:
			name := strings.TrimSuffix(e.Name(), ".lock")
			empty = empty && (name == "HEAD" || name == "config" || name == "description" || name == "crmirror")
		case filepath.Join(l.git, "hooks"), filepath.Join(l.git, "info"): // git init's
		default:
			empty = false
		}
		return nil
	})
	return empty, err
}

func isGitDir(dir string) bool {
	for _, name := range []string{"HEAD", "objects", "refs"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return false
		}
	}
	return true
}

// notARepository says what to do about a folder that holds something else.
func notARepository(dir string) error {
	for up := filepath.Dir(dir); up != filepath.Dir(up); up = filepath.Dir(up) {
		if _, err := os.Stat(filepath.Join(up, ".git")); err == nil {
			return fmt.Errorf("open repository %s: it lies inside the repository %s; give that one, and the rest as the path within it", dir, up)
		}
	}
	return fmt.Errorf("open repository %s: the folder is not empty and no git repository; choose an empty or new folder, or make it one with: git init %s", dir, dir)
}

// linkedLayout follows a .git file, as a linked worktree has one.
func linkedLayout(l layout) (layout, bool, error) {
	target, err := readPointer(l.git, "gitdir:")
	if err != nil {
		return l, false, fmt.Errorf("open repository %s: %w", l.work, err)
	}
	l.git, l.common = target, target
	common, err := readPointer(filepath.Join(l.git, "commondir"), "")
	switch {
	case err == nil:
		l.common = common
	case !errors.Is(err, fs.ErrNotExist):
		return l, false, fmt.Errorf("open repository %s: %w", l.work, err)
	}
	if _, err := os.Stat(filepath.Join(l.git, "HEAD")); err != nil {
		return l, false, fmt.Errorf("open repository %s: its .git file names %s, which is no repository: %w", l.work, l.git, err)
	}
	return l, true, nil
}

// readPointer reads a file that holds a path, relative to the file's folder.
func readPointer(file, prefix string) (string, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	rest, ok := bytes.CutPrefix(b, []byte(prefix))
	path := strings.TrimSpace(string(rest))
	if !ok || path == "" {
		return "", fmt.Errorf("%s does not say where the repository is", file)
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(file), path)
	}
	return path, nil
}

// initialize makes an empty repository, as git init does. Files that are
// there are left.
func (l layout) initialize(branch, remoteURL string) error {
	for _, dir := range []string{"objects/info", "objects/pack", "refs/heads", "refs/tags", "info"} {
		if err := os.MkdirAll(filepath.Join(l.common, dir), 0o777); err != nil {
			return fmt.Errorf("create repository %s: %w", l.common, err)
		}
	}
	text := "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n"
	switch {
	case l.own && l.work != "":
		text += "\tbare = false\n\tlogallrefupdates = true\n"
	case l.work != "":
		text += "\tbare = false\n\tworktree = ../worktree\n"
	default:
		text += "\tbare = true\n"
	}
	if remoteURL != "" {
		text += fmt.Sprintf("[remote \"origin\"]\n\turl = %q\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n", remoteURL)
	}
	// HEAD last: without it nobody takes the folder for a repository.
	for _, f := range []struct{ name, content string }{{"config", text}, {"HEAD", "ref: " + branchRef(branch) + "\n"}} {
		if err := writeSynced(filepath.Join(l.common, f.name), f.content); err != nil {
			return fmt.Errorf("create repository %s: %w", l.common, err)
		}
	}
	return nil
}

// turnWorktree makes a clone's configuration say whether it has a worktree:
// Options.Worktree may have changed since the clone was made. What people set
// there besides stays.
func (l layout) turnWorktree(c *config.Config) error {
	bare, work := "true", ""
	if l.work != "" {
		bare, work = "false", "../worktree"
	}
	core := c.Raw.Section("core")
	if core.Option("bare") == bare && core.Option("worktree") == work {
		return nil
	}
	core.SetOption("bare", bare)
	core.RemoveOption("worktree")
	if work != "" {
		core.SetOption("worktree", work)
	}
	var text strings.Builder
	if err := format.NewEncoder(&text).Encode(c.Raw); err != nil {
		return err
	}
	return writeSynced(filepath.Join(l.common, "config"), text.String())
}

// writeSynced replaces a file by way of another, NAME.lock; it is on disk, with
// its name, when this returns.
func writeSynced(name, content string) error {
	f, err := os.Create(name + ".lock")
	if err != nil {
		return err
	}
	_, err = f.WriteString(content)
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(name+".lock", name); err != nil {
		return err
	}
	return odb.SyncDir(filepath.Dir(name))
}

// readConfig reads a repository's configuration and refuses by name what we
// cannot work with.
func (l layout) readConfig() (*config.Config, error) {
	b, err := os.ReadFile(filepath.Join(l.common, "config"))
	if err != nil {
		return nil, err
	}
	c, err := config.ReadConfig(bytes.NewReader(b))
	if err != nil {
		return nil, fmt.Errorf("%w: read %s: %w", ErrDamaged, filepath.Join(l.common, "config"), err)
	}
	ext := c.Raw.Section("extensions")
	if named := ext.Option("objectFormat"); named != "" && !strings.EqualFold(named, "sha1") {
		return nil, fmt.Errorf("open repository %s: %w: its objects are named by %s; crmirror needs a repository with SHA-1 (git init --object-format=sha1)", l.common, ErrUnsupported, named)
	}
	if storage := ext.Option("refStorage"); storage != "" && !strings.EqualFold(storage, "files") {
		return nil, fmt.Errorf("open repository %s: %w: its refs are stored as %s; crmirror needs files (git refs migrate --ref-format=files)", l.common, ErrUnsupported, storage)
	}
	return c, nil
}
