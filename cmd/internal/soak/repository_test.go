//go:build long

package soak

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/crmirror/crmirror/gitstore"
	"github.com/crmirror/crmirror/gitstore/gittest"
	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/sync"
)

// people are who else works on the repository, with the git command line and a
// clone of their own. What they see there is what the test judges by.
type people struct {
	t       *testing.T
	rng     *rand.Rand
	dir     string // the clone
	serial  int
	foreign map[string]string // path → blob of the files that are not the agent's, as last pushed
	waiting map[kube.Key]bool // deletions seen to be held, of files that were there
}

func newPeople(t *testing.T, rng *rand.Rand, remote string) *people {
	t.Helper()
	p := &people{t: t, rng: rng, dir: filepath.Join(t.TempDir(), "clone"), waiting: map[kube.Key]bool{}}
	gittest.Git(t, "", "clone", "--quiet", "file://"+remote, p.dir)
	gittest.Git(t, p.dir, "config", "--add", "remote.origin.fetch", "+refs/crmirror/*:refs/crmirror/*")
	return p
}

func (p *people) git(args ...string) string {
	p.t.Helper()
	return gittest.Git(p.t, p.dir, args...)
}

// fetch learns what the remote has now, refs that are gone included.
func (p *people) fetch() {
	p.t.Helper()
	p.git("fetch", "--quiet", "--prune", "--force", "origin")
}

// ref returns what a ref of the clone points at; "" when there is none.
func (p *people) ref(name string) string {
	out, err := gittest.Run(p.t.Context(), p.dir, "rev-parse", "--verify", "--quiet", name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(out)
}

const branch = "refs/remotes/origin/main"

func (p *people) head() string { return p.ref(branch) }

// ours returns the one ref of the agent whose name ends so; "" when there is none.
func (p *people) ours(name string) string {
	p.t.Helper()
	for line := range strings.Lines(p.git("for-each-ref", "--format=%(refname)", "refs/crmirror/")) {
		if strings.HasSuffix(strings.TrimSpace(line), "/"+name) {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

var approveHint = regexp.MustCompile(`crmirror approve ([0-9a-f]{12})`)

// held returns the digest that the commit of held deletions names; "" when none are held.
func (p *people) held() string {
	p.t.Helper()
	ref := p.ours("held")
	if ref == "" {
		return ""
	}
	match := approveHint.FindStringSubmatch(p.git("log", "-1", "--format=%B", ref))
	if match == nil {
		p.t.Fatalf("%s does not say how to approve", ref)
	}
	return match[1]
}

// noteHeld remembers which files wait for an approval.
func (p *people) noteHeld() {
	p.t.Helper()
	ref := p.ours("held")
	if ref == "" || p.head() == "" {
		return
	}
	set, err := sync.ParseHeldSet(p.git("show", ref+":held") + "\n")
	if err != nil {
		p.t.Fatalf("%s: %v", ref, err)
	}
	there := p.files(branch)
	for key := range set.Keys() {
		if there[sync.PathOf(key)] != "" {
			p.waiting[key] = true
		}
	}
}

// checkHeld fails the test when a file that waited for an approval is gone
// without one, although its object never came back.
func (p *people) checkHeld(reborn map[kube.Key]bool) {
	p.t.Helper()
	there := p.files(branch)
	for key := range p.waiting {
		if there[sync.PathOf(key)] == "" && !reborn[key] {
			p.t.Fatalf("the deletion of %s was held; its file is gone without approval", key)
		}
	}
}

// act pushes something to the agent's branch, and returns what.
func (p *people) act() string {
	p.t.Helper()
	n := p.rng.IntN(100)
	for attempt := 1; ; attempt++ {
		p.fetch()
		if p.head() == "" {
			return "people find no branch yet"
		}
		p.git("reset", "--quiet", "--hard", branch)
		what, push := p.change(n)
		if _, err := gittest.Run(p.t.Context(), p.dir, append([]string{"push", "--quiet"}, push...)...); err == nil {
			p.foreign = p.foreignIn("HEAD")
			return what
		} else if attempt == 20 {
			p.t.Fatal(err)
		}
		// The agent was faster; people do it again.
	}
}

func (p *people) change(n int) (what string, push []string) {
	p.t.Helper()
	push = []string{"origin", "HEAD:main"}
	own := p.files("HEAD")
	paths := make([]string, 0, len(own))
	for path := range own {
		if path != sync.MarkerName {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	switch {
	case n < 15 && len(paths) > 0:
		victim := soakPath + "/" + paths[p.rng.IntN(len(paths))]
		content := gittest.ShowFile(p.t, p.dir, "HEAD", victim)
		if !strings.HasPrefix(content, "{") {
			p.serial++
			gittest.CommitFile(p.t, p.dir, victim, fmt.Sprintf("%spersonWasHere: %d\n", content, p.serial), "Edit a mirrored file")
			return "people edit a mirrored file", push
		}
	case n < 30 && len(paths) > 0:
		victim := paths[p.rng.IntN(len(paths))]
		maps.DeleteFunc(p.waiting, func(key kube.Key, _ bool) bool { return sync.PathOf(key) == victim })
		p.git("rm", "--quiet", "--", soakPath+"/"+victim)
		p.git("commit", "--quiet", "-m", "Remove a mirrored file")
		return "people remove a mirrored file", push
	case n < 36:
		if commits := strings.Count(p.git("rev-list", "HEAD"), "\n") + 1; commits > 6 {
			clear(p.waiting) // some of the files may be younger
			p.git("reset", "--quiet", "--hard", fmt.Sprintf("HEAD~%d", 1+p.rng.IntN(3)))
			return "people rewind the branch", append([]string{"--force-with-lease=main:" + p.head()}, push...)
		}
	}
	p.serial++
	places := []string{
		"people/notes-%d.txt", "README.md", soakPath + "/README.md", soakPath + "/cluster/kustomization.yaml",
		soakPath + "/namespaces/soak-a/widgets.soak.example.dev/notes-%d.txt", soakPath + "/namespaces/soak-c/Notes-%d.yaml",
	}
	place := places[p.rng.IntN(len(places))]
	if strings.Contains(place, "%d") {
		place = fmt.Sprintf(place, p.serial)
	}
	gittest.CommitFile(p.t, p.dir, place, fmt.Sprintf("written by people: %d\n", p.serial), "Write a file of our own")
	return "people push a file", push
}

// files returns the blobs of the agent's files in a commit, by path below its path.
func (p *people) files(commit string) map[string]string {
	p.t.Helper()
	files, _ := p.split(commit)
	return files
}

// foreignIn returns the blobs of all other files in a commit, by full path.
func (p *people) foreignIn(commit string) map[string]string {
	p.t.Helper()
	_, foreign := p.split(commit)
	return foreign
}

func (p *people) split(commit string) (files, foreign map[string]string) {
	p.t.Helper()
	files, foreign = map[string]string{}, map[string]string{}
	for entry := range strings.SplitSeq(strings.TrimSuffix(p.git("ls-tree", "-r", "-z", commit), "\x00"), "\x00") {
		meta, path, _ := strings.Cut(entry, "\t")
		blob := meta[strings.LastIndexByte(meta, ' ')+1:]
		below, ok := strings.CutPrefix(path, soakPath+"/")
		if ok && isOurs(below) {
			files[below] = blob
		} else {
			foreign[path] = blob
		}
	}
	return files, foreign
}

func isOurs(below string) bool {
	_, _, err := sync.KeyOf(below)
	return err == nil || below == sync.MarkerName
}

// compare tells how the branch differs from what should lie there; "" when it does not.
func (p *people) compare(want map[string][]byte) string {
	p.t.Helper()
	if p.head() == "" {
		return "there is no branch"
	}
	got := p.files(branch)
	var differences []string
	if got[sync.MarkerName] == "" {
		differences = append(differences, "no "+sync.MarkerName)
	}
	delete(got, sync.MarkerName)
	for path, content := range want {
		switch got[path] {
		case gitstore.BlobHash(content).String():
		case "":
			differences = append(differences, "missing: "+path)
		default:
			differences = append(differences, "not as in the cluster: "+path+"\n"+
				cmp.Diff(string(content), gittest.ShowFile(p.t, p.dir, branch, soakPath+"/"+path)))
		}
		delete(got, path)
	}
	for path := range got {
		differences = append(differences, "without an object: "+path)
	}
	slices.Sort(differences)
	return strings.Join(differences[:min(len(differences), 20)], "\n")
}

// checkForeign fails the test when a file that people pushed is not as they left it.
func (p *people) checkForeign() {
	p.t.Helper()
	if diff := cmp.Diff(p.foreign, p.foreignIn(branch)); len(p.foreign) > 0 && diff != "" {
		p.t.Errorf("files of people (-pushed +there):\n%s", diff)
	}
}

// checkBase fails the test unless the base ref agrees with the branch and is not ahead of it.
func (p *people) checkBase() {
	p.t.Helper()
	ref := p.ours("base")
	if ref == "" {
		p.t.Fatal("there is no base ref")
	}
	if got, want := p.git("rev-parse", ref+":"+soakPath), p.git("rev-parse", branch+":"+soakPath); got != want {
		p.t.Errorf("tree of %s below %s: got %s, want the branch's %s", ref, soakPath, got, want)
	}
	for path := range p.foreignIn(ref) {
		if !strings.HasPrefix(path, soakPath+"/") {
			p.t.Errorf("%s holds a file outside %s: %s", ref, soakPath, path)
		}
	}
	p.git("merge-base", "--is-ancestor", ref+"^", branch)
}

// checkHistory fails the test unless every commit of the branch stands for
// itself: one parent, every file at one of the agent's paths is whole and names
// its object, and the agent's commits change as many objects as they say.
//
// Since each commit is checked for what it changes, every tree is checked as a whole.
func (p *people) checkHistory() {
	p.t.Helper()
	commits := strings.Fields(p.git("rev-list", "--reverse", "--topo-order", branch))
	files := map[soakFile]bool{}
	agents := 0
	for i, commit := range commits {
		header := strings.SplitN(p.git("log", "-1", "--format=%P%n%an%n%(trailers:key=Crmirror-Objects,valueonly)", commit), "\n", 3)
		if want := commits[max(0, i-1):i]; !slices.Equal(strings.Fields(header[0]), want) {
			p.t.Errorf("parents of %s: got %q, want %q", commit, header[0], want)
		}
		objects := 0
		for path, blob := range p.changed(commit) {
			below, ok := strings.CutPrefix(path, soakPath+"/")
			if !ok || !isOurs(below) {
				if header[1] == "crmirror" {
					p.t.Errorf("commit %s of the agent changes %s", commit, path)
				}
				continue
			}
			if below != sync.MarkerName {
				objects++
			}
			if strings.Trim(blob, "0") != "" {
				files[soakFile{blob, below}] = true
			}
		}
		if header[1] != "crmirror" {
			continue
		}
		agents++
		if got, err := strconv.Atoi(strings.TrimSpace(header[2])); err != nil || got != objects {
			p.t.Errorf("commit %s says that it changes %q objects, and changes %d", commit, header[2], objects)
		}
	}
	p.t.Logf("history: %d commits, %d of them by the agent, %d different files", len(commits), agents, len(files))
	if agents < 10 {
		p.t.Errorf("commits of the agent: got %d, want a history worth checking", agents)
	}
	p.checkFiles(slices.Collect(maps.Keys(files)))
}

// changed returns the blobs after a commit of the files that it changes, by path.
func (p *people) changed(commit string) map[string]string {
	p.t.Helper()
	changed := map[string]string{}
	fields := strings.Split(p.git("diff-tree", "--root", "--no-commit-id", "-r", "-z", "--no-renames", commit), "\x00")
	for i := 0; i+1 < len(fields); i += 2 {
		changed[fields[i+1]] = strings.Fields(fields[i])[3]
	}
	return changed
}

// soakFile is a blob at a path below the agent's.
type soakFile struct{ blob, path string }

// checkFiles decodes files and holds what they name against the paths they stand at.
func (p *people) checkFiles(files []soakFile) {
	p.t.Helper()
	var names bytes.Buffer
	for _, f := range files {
		names.WriteString(f.blob + "\n")
	}
	cat := exec.CommandContext(p.t.Context(), "git", "-C", p.dir, "cat-file", "--batch")
	cat.Stdin = &names
	out, err := cat.Output()
	if err != nil {
		p.t.Fatalf("git cat-file: %v", err)
	}
	for _, f := range files { // the answers come in the order of the questions
		header, rest, _ := bytes.Cut(out, []byte("\n"))
		var name, kind string
		var size int
		if _, err := fmt.Sscan(string(header), &name, &kind, &size); err != nil || name != f.blob {
			p.t.Fatalf("git cat-file: %q for %s", header, f.blob)
		}
		if err := checkFile(f.path, rest[:size]); err != nil {
			p.t.Errorf("blob %s at %s: %v\n%s", f.blob, f.path, err, rest[:size])
		}
		out = rest[size+1:]
	}
}

func checkFile(path string, content []byte) error {
	if path == sync.MarkerName {
		_, err := sync.ParseTree(content)
		return err
	}
	obj, err := kube.Decode(content)
	if err != nil {
		return err
	}
	_, err = sync.KeyOfFile(path, obj.GroupVersionKind().Group, obj.GetNamespace(), obj.GetName())
	return err
}
