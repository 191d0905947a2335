package threeway

import (
	"cmp"
	"errors"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/crmirror/crmirror/kube"
)

// cell is one case of the table. Contents are YAML without identity, "-" is no object. What is
// left out of the results is: w as c, f as g, b as f, k as b.
type cell struct {
	name      string
	o, g, c   string
	w, f, b   string
	k         string
	set       []string
	remove    []string
	conflicts []string // "path: reason"
	findings  []string // "path: kind"
	unknown   []string // of the result; "." is the object
	action    Action

	in func(t *testing.T, in *Input)
}

func (c cell) run(t *testing.T, typ typed.ParseableType) {
	t.Helper()
	in := Input{Base: object(t, c.o), Git: object(t, c.g), Cluster: object(t, c.c), Type: typ}
	if c.in != nil {
		c.in(t, &in)
	}
	before := clone([]any{in.Base, in.Git, in.Cluster})
	d, err := Decide(in)
	if err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(before, clone([]any{in.Base, in.Git, in.Cluster})); diff != "" {
		t.Errorf("the input was modified: %s", diff)
	}
	w := cmp.Or(c.w, c.c)
	f := cmp.Or(c.f, c.g)
	b := cmp.Or(c.b, f)
	k := cmp.Or(c.k, b)
	for _, r := range []struct {
		name, want string
		got        map[string]any
	}{{"cluster", w, d.Cluster}, {"file", f, d.File}, {"base", b, d.Base}, {"kept", k, d.Kept}} {
		if diff := gocmp.Diff(object(t, r.want), r.got); diff != "" {
			t.Errorf("%s (-want +got): %s", r.name, diff)
		}
	}
	var conflicts, findings []string
	for _, con := range d.Conflicts {
		conflicts = append(conflicts, con.Path.String()+": "+con.Reason)
	}
	for _, find := range d.Findings {
		findings = append(findings, find.Path.String()+": "+string(find.Kind))
	}
	unknown := pathsOf(d.Unknown.Fields)
	if d.Unknown.Object {
		unknown = append(unknown, ".")
	}
	for _, r := range []struct {
		name      string
		want, got []string
	}{
		{"set", c.set, pathsOf(d.Set)}, {"remove", c.remove, pathsOf(d.Remove)}, {"conflicts", c.conflicts, conflicts},
		{"findings", c.findings, findings}, {"unknown", c.unknown, unknown},
	} {
		if !slices.Equal(r.want, r.got) {
			t.Errorf("%s: got %q, want %q", r.name, r.got, r.want)
		}
	}
	if d.Object != c.action {
		t.Errorf("object: got %q, want %q", d.Object, c.action)
	}
}

func pathsOf(s *fieldpath.Set) []string {
	var out []string
	s.Iterate(func(p fieldpath.Path) { out = append(out, p.String()) })
	return out
}

func runCells(t *testing.T, typ typed.ParseableType, cells []cell) {
	t.Helper()
	for _, c := range cells {
		t.Run(c.name, func(t *testing.T) { c.run(t, typ) })
	}
}

func TestScalars(t *testing.T) {
	runCells(t, handmadeType(t), []cell{
		{name: "nothing moved", o: "spec: {size: 1}", g: "spec: {size: 1}", c: "spec: {size: 1}"},
		{name: "agreed", o: "spec: {size: 1}", g: "spec: {size: 2}", c: "spec: {size: 2}"},
		{name: "git moved", o: "spec: {size: 1}", g: "spec: {size: 2}", c: "spec: {size: 1}",
			w: "spec: {size: 2}", k: "spec: {size: 1}", set: []string{".spec.size"}},
		{name: "cluster moved", o: "spec: {size: 1}", g: "spec: {size: 1}", c: "spec: {size: 2}", f: "spec: {size: 2}"},
		{name: "all differ", o: "spec: {size: 1}", g: "spec: {size: 2}", c: "spec: {size: 3}", b: "spec: {size: 1}",
			conflicts: []string{".spec.size: " + ReasonChanged}},
		{name: "the rest goes on", o: "spec: {size: 1, legacy: a, port: 1}", g: "spec: {size: 2, legacy: b, port: 1}", c: "spec: {size: 3, legacy: a, port: 2}",
			w: "spec: {size: 3, legacy: b, port: 2}", f: "spec: {size: 2, legacy: b, port: 2}", b: "spec: {size: 1, legacy: b, port: 2}",
			k: "spec: {size: 1, legacy: a, port: 2}", set: []string{".spec.legacy"}, conflicts: []string{".spec.size: " + ReasonChanged}},
		{name: "added in git", o: "spec: {size: 1}", g: "spec: {size: 1, legacy: a}", c: "spec: {size: 1}",
			w: "spec: {size: 1, legacy: a}", k: "spec: {size: 1}", set: []string{".spec.legacy"}},
		{name: "added in the cluster", o: "spec: {size: 1}", g: "spec: {size: 1}", c: "spec: {size: 1, legacy: a}", f: "spec: {size: 1, legacy: a}"},
		{name: "added on both, equal", o: "spec: {size: 1}", g: "spec: {size: 1, legacy: a}", c: "spec: {size: 1, legacy: a}"},
		{name: "added on both, different", o: "spec: {size: 1}", g: "spec: {size: 1, legacy: a}", c: "spec: {size: 1, legacy: b}",
			b: "spec: {size: 1}", conflicts: []string{".spec.legacy: " + ReasonChanged}},
		{name: "removed in git", o: "spec: {size: 1, legacy: a}", g: "spec: {size: 1}", c: "spec: {size: 1, legacy: a}",
			w: "spec: {size: 1}", k: "spec: {size: 1, legacy: a}", remove: []string{".spec.legacy"}},
		{name: "removed in the cluster", o: "spec: {size: 1, legacy: a}", g: "spec: {size: 1, legacy: a}", c: "spec: {size: 1}", f: "spec: {size: 1}"},
		{name: "removed on both", o: "spec: {size: 1, legacy: a}", g: "spec: {size: 1}", c: "spec: {size: 1}"},
		{name: "removed in git, changed in the cluster", o: "spec: {size: 1, legacy: a}", g: "spec: {size: 1}", c: "spec: {size: 1, legacy: b}",
			b: "spec: {size: 1, legacy: a}", conflicts: []string{".spec.legacy: " + ReasonDeletedInGit}},
		{name: "changed in git, removed in the cluster", o: "spec: {size: 1, legacy: a}", g: "spec: {size: 1, legacy: b}", c: "spec: {size: 1}",
			b: "spec: {size: 1, legacy: a}", conflicts: []string{".spec.legacy: " + ReasonDeletedInCluster}},
		{name: "a default that git did not ask for", o: "spec: {size: 1}", g: "spec: {size: 2}", c: "spec: {size: 1, port: 80}",
			w: "spec: {size: 2, port: 80}", f: "spec: {size: 2, port: 80}", k: "spec: {size: 1, port: 80}", set: []string{".spec.size"}},
		{name: "a removed field came back at its default", o: "spec: {size: 1}", g: "spec: {size: 1}", c: "spec: {size: 1, port: 80}", f: "spec: {size: 1, port: 80}"},
		{name: "one number written two ways", o: "spec: {size: 1}", g: "spec: {size: 1.0}", c: "spec: {size: 1}", f: "spec: {size: 1}"},
		{name: "numbers beyond a float's precision", o: "spec: {size: 9007199254740992}", g: "spec: {size: 9007199254740993}", c: "spec: {size: 9007199254740992}",
			w: "spec: {size: 9007199254740993}", k: "spec: {size: 9007199254740992}", set: []string{".spec.size"}},
		{name: "int or string", o: "spec: {port: 80}", g: "spec: {port: http}", c: "spec: {port: 80}",
			w: "spec: {port: http}", k: "spec: {port: 80}", set: []string{".spec.port"}},
		{name: "a number and a string of it are two values", o: "spec: {port: 80}", g: `spec: {port: "80"}`, c: "spec: {port: 81}", b: "spec: {port: 80}",
			conflicts: []string{".spec.port: " + ReasonChanged}},
	})
}

func TestNull(t *testing.T) {
	runCells(t, handmadeType(t), []cell{
		{name: "null is a value", o: "spec: {size: 1, note: a}", g: "spec: {size: 1, note: null}", c: "spec: {size: 1, note: a}",
			w: "spec: {size: 1, note: null}", k: "spec: {size: 1, note: a}", set: []string{".spec.note"}},
		{name: "null is not absent", o: "spec: {size: 1, note: null}", g: "spec: {size: 1}", c: "spec: {size: 1, note: null}",
			w: "spec: {size: 1}", k: "spec: {size: 1, note: null}", remove: []string{".spec.note"}},
		{name: "null against a change", o: "spec: {note: a}", g: "spec: {note: null}", c: "spec: {note: b}", b: "spec: {note: a}",
			conflicts: []string{".spec.note: " + ReasonChanged}},
		{name: "a map becomes null in the cluster", o: "spec: {tags: {a: x}}", g: "spec: {tags: {a: x}}", c: "spec: {tags: null}", f: "spec: {tags: null}"},
		{name: "null becomes a map in git", o: "spec: {tags: null}", g: "spec: {tags: {a: x}}", c: "spec: {tags: null}",
			w: "spec: {tags: {a: x}}", k: "spec: {tags: null}", set: []string{".spec.tags.a"}},
		{name: "a map becomes null in git, changed in the cluster", o: "spec: {tags: {a: x}}", g: "spec: {tags: null}", c: "spec: {tags: {a: v}}",
			b: "spec: {tags: {a: x}}", conflicts: []string{".spec.tags: " + ReasonChanged}},
	})
}

func TestMaps(t *testing.T) {
	runCells(t, handmadeType(t), []cell{
		{name: "different keys", o: "spec: {tags: {a: x}}", g: "spec: {tags: {a: x, b: x}}", c: "spec: {tags: {a: x, c: x}}",
			w: "spec: {tags: {a: x, b: x, c: x}}", f: "spec: {tags: {a: x, b: x, c: x}}", k: "spec: {tags: {a: x, c: x}}", set: []string{".spec.tags.b"}},
		{name: "both make it, different keys", o: "spec: {size: 1}", g: "spec: {size: 1, tags: {b: x}}", c: "spec: {size: 1, tags: {c: x}}",
			w: "spec: {size: 1, tags: {b: x, c: x}}", f: "spec: {size: 1, tags: {b: x, c: x}}", k: "spec: {size: 1, tags: {c: x}}", set: []string{".spec.tags.b"}},
		{name: "git removes all, the cluster adds", o: "spec: {size: 1, tags: {a: x}}", g: "spec: {size: 1}", c: "spec: {size: 1, tags: {a: x, b: x}}",
			w: "spec: {size: 1, tags: {b: x}}", f: "spec: {size: 1, tags: {b: x}}", k: "spec: {size: 1, tags: {a: x, b: x}}", remove: []string{".spec.tags.a"}},
		{name: "the cluster removes all, git adds", o: "spec: {size: 1, tags: {a: x}}", g: "spec: {size: 1, tags: {a: x, b: x}}", c: "spec: {size: 1}",
			w: "spec: {size: 1, tags: {b: x}}", f: "spec: {size: 1, tags: {b: x}}", k: "spec: {size: 1}", set: []string{".spec.tags.b"}},
		{name: "git removes it", o: "spec: {size: 1, tags: {a: x, b: x}}", g: "spec: {size: 1}", c: "spec: {size: 1, tags: {a: x, b: x}}",
			w: "spec: {size: 1}", k: "spec: {size: 1, tags: {a: x, b: x}}", remove: []string{".spec.tags"}},
		{name: "git empties it", o: "spec: {tags: {a: x, b: x}}", g: "spec: {tags: {}}", c: "spec: {tags: {a: x, b: x}}",
			w: "spec: {tags: {}}", k: "spec: {tags: {a: x, b: x}}", remove: []string{".spec.tags.a", ".spec.tags.b"}},
		{name: "the cluster empties it", o: "spec: {tags: {a: x}}", g: "spec: {tags: {a: x}}", c: "spec: {tags: {}}", f: "spec: {tags: {}}"},
		{name: "git adds an empty one", o: "spec: {size: 1}", g: "spec: {size: 1, tls: {}}", c: "spec: {size: 1}",
			w: "spec: {size: 1, tls: {}}", k: "spec: {size: 1}", set: []string{".spec.tls"}},
		{name: "git removes an empty one", o: "spec: {size: 1, tls: {}}", g: "spec: {size: 1}", c: "spec: {size: 1, tls: {}}",
			w: "spec: {size: 1}", k: "spec: {size: 1, tls: {}}", remove: []string{".spec.tls"}},
		{name: "the cluster removes an empty one", o: "spec: {size: 1, tls: {}}", g: "spec: {size: 1, tls: {}}", c: "spec: {size: 1}", f: "spec: {size: 1}"},
		{name: "git removes what the cluster emptied", o: "spec: {size: 1, tags: {a: x}}", g: "spec: {size: 1}", c: "spec: {size: 1, tags: {}}",
			w: "spec: {size: 1}", k: "spec: {size: 1, tags: {}}", remove: []string{".spec.tags"}},
		{name: "an atomic one is one value", o: "spec: {selector: {a: x}}", g: "spec: {selector: {a: x, b: x}}", c: "spec: {selector: {a: x, c: x}}", b: "spec: {selector: {a: x}}",
			conflicts: []string{".spec.selector: " + ReasonChanged}},
		{name: "git moves an atomic one", o: "spec: {selector: {a: x}}", g: "spec: {selector: {b: x}}", c: "spec: {selector: {a: x}}",
			w: "spec: {selector: {b: x}}", k: "spec: {selector: {a: x}}", set: []string{".spec.selector"}},
		{name: "nested", o: "spec: {groups: {g: {secret: a, host: b}}}", g: "spec: {groups: {g: {secret: c, host: b}}}", c: "spec: {groups: {g: {secret: a, host: d}}}",
			w: "spec: {groups: {g: {secret: c, host: d}}}", f: "spec: {groups: {g: {secret: c, host: d}}}", k: "spec: {groups: {g: {secret: a, host: d}}}",
			set: []string{".spec.groups.g.secret"}},
	})
}

func TestStructs(t *testing.T) {
	runCells(t, handmadeType(t), []cell{
		{name: "git adds one", o: "spec: {size: 1}", g: "spec: {size: 1, tls: {secret: a, host: b}}", c: "spec: {size: 1}",
			w: "spec: {size: 1, tls: {secret: a, host: b}}", k: "spec: {size: 1}", set: []string{".spec.tls.host", ".spec.tls.secret"}},
		{name: "git removes one", o: "spec: {size: 1, tls: {secret: a}}", g: "spec: {size: 1}", c: "spec: {size: 1, tls: {secret: a}}",
			w: "spec: {size: 1}", k: "spec: {size: 1, tls: {secret: a}}", remove: []string{".spec.tls"}},
		{name: "git removes, the cluster changes", o: "spec: {size: 1, tls: {secret: a, host: b}}", g: "spec: {size: 1}", c: "spec: {size: 1, tls: {secret: a, host: c}}",
			b: "spec: {size: 1, tls: {secret: a, host: b}}", conflicts: []string{".spec.tls: " + ReasonDeletedInGit}},
		{name: "the cluster removes, git adds a field", o: "spec: {size: 1, tls: {secret: a}}", g: "spec: {size: 1, tls: {secret: a, host: b}}", c: "spec: {size: 1}",
			b: "spec: {size: 1, tls: {secret: a}}", conflicts: []string{".spec.tls: " + ReasonDeletedInCluster}},
		{name: "both make it anew", o: "spec: {size: 1}", g: "spec: {size: 1, tls: {secret: a}}", c: "spec: {size: 1, tls: {secret: a, host: b}}",
			b: "spec: {size: 1, tls: {secret: a}}", conflicts: []string{".spec.tls.host: " + ReasonUnknown}, unknown: []string{".spec.tls.host"}},
		{name: "both make it anew, equal", o: "spec: {size: 1}", g: "spec: {size: 1, tls: {secret: a}}", c: "spec: {size: 1, tls: {secret: a}}"},
		{name: "one of: git replaces a field by another", o: "spec: {tls: {secret: a}}", g: "spec: {tls: {host: b}}", c: "spec: {tls: {secret: a}}",
			w: "spec: {tls: {host: b}}", k: "spec: {tls: {secret: a}}", set: []string{".spec.tls.host"}, remove: []string{".spec.tls.secret"}},
	})
}

func TestLists(t *testing.T) {
	runCells(t, handmadeType(t), []cell{
		{name: "an atomic one is one value", o: "spec: {args: [a]}", g: "spec: {args: [a, b]}", c: "spec: {args: [a, c]}", b: "spec: {args: [a]}",
			conflicts: []string{".spec.args: " + ReasonChanged}},
		{name: "git reorders an atomic one", o: "spec: {args: [a, b]}", g: "spec: {args: [b, a]}", c: "spec: {args: [a, b]}",
			w: "spec: {args: [b, a]}", k: "spec: {args: [a, b]}", set: []string{".spec.args"}},
		{name: "set: both add and remove", o: "spec: {zones: [a, b, c]}", g: "spec: {zones: [b, c, d]}", c: "spec: {zones: [a, b, e]}",
			w: "spec: {zones: [b, d, e]}", f: "spec: {zones: [b, d, e]}", k: "spec: {zones: [a, b, e]}",
			set: []string{`.spec.zones[="d"]`}, remove: []string{`.spec.zones[="a"]`}},
		{name: "set: order alone, in git", o: "spec: {zones: [a, b]}", g: "spec: {zones: [b, a]}", c: "spec: {zones: [a, b]}", b: "spec: {zones: [a, b]}"},
		{name: "set: order alone, in the cluster", o: "spec: {zones: [a, b]}", g: "spec: {zones: [a, b]}", c: "spec: {zones: [b, a]}", f: "spec: {zones: [b, a]}"},
		{name: "set: reordered in git, grown in the cluster", o: "spec: {zones: [a, b]}", g: "spec: {zones: [b, a]}", c: "spec: {zones: [a, c, b]}",
			f: "spec: {zones: [b, a, c]}", b: "spec: {zones: [a, c, b]}"},
		{name: "set: git empties it", o: "spec: {zones: [a]}", g: "spec: {zones: []}", c: "spec: {zones: [a]}",
			w: "spec: {zones: []}", k: "spec: {zones: [a]}", remove: []string{`.spec.zones[="a"]`}},
		{name: "set: git removes it", o: "spec: {size: 1, zones: [a]}", g: "spec: {size: 1}", c: "spec: {size: 1, zones: [a]}",
			w: "spec: {size: 1}", k: "spec: {size: 1, zones: [a]}", remove: []string{".spec.zones"}},
		{name: "by key: different items", o: "spec: {users: [{name: a, role: x}, {name: b, role: x}]}",
			g: "spec: {users: [{name: a, role: v}, {name: b, role: x}]}", c: "spec: {users: [{name: b, role: z}, {name: a, role: x}]}",
			w: "spec: {users: [{name: b, role: z}, {name: a, role: v}]}", f: "spec: {users: [{name: b, role: z}, {name: a, role: v}]}",
			k: "spec: {users: [{name: b, role: z}, {name: a, role: x}]}", set: []string{`.spec.users[name="a"].name`, `.spec.users[name="a"].role`}},
		{name: "by key: new items keep their place", o: "spec: {users: [{name: a}, {name: b}]}", g: "spec: {users: [{name: a}, {name: m, role: x}, {name: b}]}",
			c: "spec: {users: [{name: a}, {name: b}]}", w: "spec: {users: [{name: a}, {name: m, role: x}, {name: b}]}", k: "spec: {users: [{name: a}, {name: b}]}",
			set: []string{`.spec.users[name="m"].name`, `.spec.users[name="m"].role`}},
		{name: "by key: git removes an item", o: "spec: {users: [{name: a}, {name: b}]}", g: "spec: {users: [{name: b}]}", c: "spec: {users: [{name: a}, {name: b}]}",
			w: "spec: {users: [{name: b}]}", k: "spec: {users: [{name: a}, {name: b}]}", remove: []string{`.spec.users[name="a"]`}},
		{name: "by key: removed in git, changed in the cluster", o: "spec: {users: [{name: a, role: x}, {name: b}]}", g: "spec: {users: [{name: b}]}",
			c: "spec: {users: [{name: a, role: v}, {name: b}]}", b: "spec: {users: [{name: a, role: x}, {name: b}]}",
			conflicts: []string{`.spec.users[name="a"]: ` + ReasonDeletedInGit}},
		{name: "by key: both add, equal but for a field", o: "spec: {users: []}", g: "spec: {users: [{name: a, role: x}]}", c: "spec: {users: [{name: a, role: v}]}",
			b: "spec: {users: [{name: a}]}", conflicts: []string{`.spec.users[name="a"].role: ` + ReasonUnknown}, unknown: []string{`.spec.users[name="a"].role`}},
		{name: "by key: a set in an item", o: "spec: {users: [{name: a, keys: [x]}]}", g: "spec: {users: [{name: a, keys: [x, v]}]}", c: "spec: {users: [{name: a, keys: [x, z]}]}",
			w: "spec: {users: [{name: a, keys: [x, v, z]}]}", f: "spec: {users: [{name: a, keys: [x, v, z]}]}", k: "spec: {users: [{name: a, keys: [x, z]}]}",
			set: []string{`.spec.users[name="a"].name`, `.spec.users[name="a"].keys[="v"]`}},
		{name: "two keys, one at its default", o: "spec: {ports: [{port: 1, timeout: 1}]}", g: "spec: {ports: [{port: 1, timeout: 2}]}", c: "spec: {ports: [{port: 1, protocol: TCP, timeout: 1}]}",
			w: "spec: {ports: [{port: 1, protocol: TCP, timeout: 2}]}", f: "spec: {ports: [{port: 1, protocol: TCP, timeout: 2}]}",
			k:   "spec: {ports: [{port: 1, protocol: TCP, timeout: 1}]}",
			set: []string{`.spec.ports[port=1,protocol="TCP"].port`, `.spec.ports[port=1,protocol="TCP"].timeout`}},
		{name: "duplicate keys in the cluster: its change is one", o: "spec: {users: [{name: a}]}", g: "spec: {users: [{name: a}]}", c: "spec: {users: [{name: a}, {name: a, role: x}]}",
			f: "spec: {users: [{name: a}, {name: a, role: x}]}"},
		{name: "duplicate keys in git are not applied", o: "spec: {users: [{name: a}]}", g: "spec: {users: [{name: a}, {name: a}]}", c: "spec: {users: [{name: a}]}",
			b: "spec: {users: [{name: a}]}", findings: []string{".spec.users: " + string(Unkeyed)}},
		{name: "an item without its key is not applied", o: "spec: {users: [{name: a}]}", g: "spec: {users: [{role: x}]}", c: "spec: {users: [{name: a}]}",
			b: "spec: {users: [{name: a}]}", findings: []string{".spec.users: " + string(Unkeyed)}},
	})
}

func TestUnfit(t *testing.T) {
	cells := []cell{
		{name: "a wrong type", o: "spec: {size: 1, legacy: a}", g: "spec: {size: many, legacy: b}", c: "spec: {size: 1, legacy: a}",
			w: "spec: {size: 1, legacy: b}", b: "spec: {size: 1, legacy: b}", k: "spec: {size: 1, legacy: a}",
			set: []string{".spec.legacy"}, findings: []string{".spec.size: " + string(UnfitForSchema)}},
		{name: "a map for a scalar", o: "spec: {size: 1}", g: "spec: {size: {a: 1}}", c: "spec: {size: 1}", b: "spec: {size: 1}",
			findings: []string{".spec.size: " + string(UnfitForSchema)}},
		{name: "an undeclared field", o: "spec: {size: 1}", g: "spec: {size: 2, siez: 3}", c: "spec: {size: 1}",
			w: "spec: {size: 2}", b: "spec: {size: 2}", k: "spec: {size: 1}", set: []string{".spec.size"},
			findings: []string{".spec.siez: " + string(UnfitForSchema)}},
		{name: "an undeclared field in a new struct", o: "spec: {size: 1}", g: "spec: {size: 1, tls: {secret: a, hots: b}}", c: "spec: {size: 1}",
			b: "spec: {size: 1}", findings: []string{".spec.tls: " + string(UnfitForSchema)}},
		{name: "a field of the cluster's that this schema does not know", o: "spec: {size: 1}", g: "spec: {size: 1}", c: "spec: {size: 1, later: {a: 1}}",
			f: "spec: {size: 1, later: {a: 1}}"},
	}
	runCells(t, handmadeType(t), cells)
}

func TestUntyped(t *testing.T) {
	cells := []cell{
		{name: "maps key by key", o: "spec: {values: {a: {x: 1, q: 1}}}", g: "spec: {values: {a: {x: 2, q: 1}}}", c: "spec: {values: {a: {x: 1, q: 2}}}",
			w: "spec: {values: {a: {x: 2, q: 2}}}", f: "spec: {values: {a: {x: 2, q: 2}}}", k: "spec: {values: {a: {x: 1, q: 2}}}", set: []string{".spec.values.a.x"}},
		{name: "lists as a whole", o: "spec: {values: {a: [{name: a}]}}", g: "spec: {values: {a: [{name: a}, {name: b}]}}", c: "spec: {values: {a: [{name: c}]}}",
			b: "spec: {values: {a: [{name: a}]}}", conflicts: []string{".spec.values.a: " + ReasonChanged}},
		{name: "a map becomes a list", o: "spec: {values: {a: {x: 1}}}", g: "spec: {values: {a: [1]}}", c: "spec: {values: {a: {x: 1}}}",
			w: "spec: {values: {a: [1]}}", k: "spec: {values: {a: {x: 1}}}", set: []string{".spec.values.a"}},
		{name: "a map comes and goes as one", o: "spec: {values: {a: {x: 1}}}", g: "spec: {values: {}}", c: "spec: {values: {a: {x: 1, q: 1}}}",
			b: "spec: {values: {a: {x: 1}}}", conflicts: []string{".spec.values.a: " + ReasonDeletedInGit}},
		{name: "an embedded object", o: "spec: {values: {kind: Pod, metadata: {labels: {a: x}}}}", g: "spec: {values: {kind: Pod, metadata: {labels: {a: v}}}}",
			c: "spec: {values: {kind: Pod, metadata: {labels: {a: x, b: x}}}}", w: "spec: {values: {kind: Pod, metadata: {labels: {a: v, b: x}}}}",
			f: "spec: {values: {kind: Pod, metadata: {labels: {a: v, b: x}}}}", k: "spec: {values: {kind: Pod, metadata: {labels: {a: x, b: x}}}}",
			set: []string{".spec.values.metadata.labels.a"}},
	}
	t.Run("below a schema", func(t *testing.T) { runCells(t, handmadeType(t), cells) })
	t.Run("without a schema", func(t *testing.T) { runCells(t, typed.ParseableType{}, cells) })
}

func TestErrors(t *testing.T) {
	ok := object(t, "spec: {size: 1}")
	other := object(t, "spec: {size: 1}")
	other["metadata"] = map[string]any{"name": "y"}
	later := object(t, "version: v2")
	for name, c := range map[string]struct {
		in   Input
		want error
	}{
		"no metadata":                 {Input{Git: map[string]any{"apiVersion": "v1", "kind": "Thing"}}, kube.ErrIdentity},
		"apiVersion is none":          {Input{Git: map[string]any{"apiVersion": "a/b/c", "kind": "Thing", "metadata": map[string]any{"name": "x"}}}, kube.ErrIdentity},
		"another name":                {Input{Base: ok, Git: other, Cluster: ok}, ErrIdentity},
		"another name in base":        {Input{Base: other, Git: ok, Cluster: ok}, ErrIdentity},
		"git and cluster of versions": {Input{Base: ok, Git: ok, Cluster: later}, ErrIdentity},
	} {
		if _, err := Decide(c.in); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
	}
}
