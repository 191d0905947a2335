package threeway

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/crmirror/crmirror/kube"
)

func TestObject(t *testing.T) {
	judged := func(reason string) func(*testing.T, *Input) {
		return func(_ *testing.T, in *Input) {
			in.Judge = func(m Move) string {
				if len(m.Path) == 0 {
					return reason
				}
				return ""
			}
		}
	}
	unknown := func(_ *testing.T, in *Input) { in.Unknown.Object = true }
	runCells(t, handmadeType(t), []cell{
		{name: "nowhere", o: "-", g: "-", c: "-"},
		{name: "created in git", o: "-", g: "spec: {size: 1}", c: "-", w: "spec: {size: 1}", k: "-", action: CreateObject},
		{name: "created in the cluster", o: "-", g: "-", c: "spec: {size: 1}", f: "spec: {size: 1}", action: CreateFile},
		{name: "created on both, equal", o: "-", g: "spec: {size: 1}", c: "spec: {size: 1}"},
		{name: "created on both, different", o: "-", g: "spec: {size: 1, legacy: a}", c: "spec: {size: 2, legacy: a}", b: "spec: {legacy: a}",
			conflicts: []string{".spec.size: " + ReasonUnknown}, unknown: []string{".spec.size"}},
		{name: "deleted in git", o: "spec: {size: 1}", g: "-", c: "spec: {size: 1}", w: "-", k: "spec: {size: 1}", action: DeleteObject},
		{name: "deleted in git, only status moved", o: "spec: {size: 1}, status: {count: 1}", g: "-", c: "spec: {size: 1}, status: {count: 2}",
			w: "-", k: "spec: {size: 1}, status: {count: 1}", action: DeleteObject},
		{name: "deleted in git, only order moved", o: "spec: {zones: [a, b]}", g: "-", c: "spec: {zones: [b, a]}", w: "-", k: "spec: {zones: [a, b]}", action: DeleteObject},
		{name: "deleted in git, changed in the cluster", o: "spec: {size: 1}", g: "-", c: "spec: {size: 2}", b: "spec: {size: 1}",
			conflicts: []string{": " + ReasonDeletedInGit}},
		{name: "deleted in git, a label added in the cluster", o: "spec: {size: 1}", g: "-", c: "meta: {labels: {a: x}}, spec: {size: 1}", b: "spec: {size: 1}",
			conflicts: []string{": " + ReasonDeletedInGit}},
		{name: "deleted in the cluster", o: "spec: {size: 1}", g: "spec: {size: 1}", c: "-", f: "-", action: DeleteFile},
		{name: "deleted in the cluster, changed in git", o: "spec: {size: 1}", g: "spec: {size: 2}", c: "-", b: "spec: {size: 1}",
			conflicts: []string{": " + ReasonDeletedInCluster}},
		{name: "deleted on both", o: "spec: {size: 1}", g: "-", c: "-"},
		{name: "recreated in git", o: "-", g: "spec: {size: 2}", c: "-", w: "spec: {size: 2}", k: "-", action: CreateObject},

		{name: "unknown, equal", o: "-", g: "spec: {size: 1}", c: "spec: {size: 1}", in: unknown},
		{name: "unknown, different", o: "-", g: "spec: {size: 1}", c: "spec: {size: 2}", b: "spec: {}", in: unknown,
			conflicts: []string{".spec.size: " + ReasonUnknown}, unknown: []string{".spec.size"}},
		{name: "unknown, gone in the cluster", o: "-", g: "spec: {size: 1}", c: "-", b: "-", in: unknown, conflicts: []string{": " + ReasonUnknown}, unknown: []string{"."}},
		{name: "unknown, gone in git", o: "spec: {size: 1}", g: "-", c: "spec: {size: 1}", b: "-", in: unknown, conflicts: []string{": " + ReasonUnknown}, unknown: []string{"."}},
		{name: "unknown, gone on both", o: "spec: {size: 1}", g: "-", c: "-", in: unknown},
		{name: "a field unknown, deleted in git", o: "spec: {size: 1}", g: "-", c: "spec: {size: 1}", b: "spec: {size: 1}",
			in:        func(t *testing.T, in *Input) { in.Unknown.Fields = pathSet(t, ".spec.legacy") },
			conflicts: []string{": " + ReasonUnknown}, unknown: []string{".spec.legacy"}},

		{name: "base of another version, equal", o: "version: v2, spec: {size: 3}", g: "spec: {size: 1}", c: "spec: {size: 1}"},
		{name: "base of another version, different", o: "version: v2, spec: {size: 1}", g: "spec: {size: 2}", c: "spec: {size: 1}", b: "version: v2, spec: {size: 1}",
			conflicts: []string{": " + ReasonVersion}},
		{name: "base of another version, deleted in git", o: "version: v2, spec: {size: 1}", g: "-", c: "spec: {size: 1}", b: "version: v2, spec: {size: 1}",
			conflicts: []string{": " + ReasonDeletedInGit}},

		{name: "judged: create", o: "-", g: "spec: {size: 1}", c: "-", b: "-", in: judged("no"), conflicts: []string{": no"}},
		{name: "judged: delete", o: "spec: {size: 1}", g: "-", c: "spec: {size: 1}", b: "spec: {size: 1}", in: judged("held"), conflicts: []string{": held"}},
		{name: "judged: create file", o: "-", g: "-", c: "spec: {size: 1}", in: judged("no"), conflicts: []string{": no"}},
		{name: "judged: delete file", o: "spec: {size: 1}", g: "spec: {size: 1}", c: "-", in: judged("no"), conflicts: []string{": no"}},

		{name: "created with what only the server writes", o: "-", c: "-",
			g: `meta: {uid: u, annotations: {"kubectl.kubernetes.io/last-applied-configuration": x}}, spec: {size: 1}, status: {count: 1}`,
			w: "meta: {annotations: {}}, spec: {size: 1}", b: "meta: {annotations: {}}, spec: {size: 1}", k: "-", action: CreateObject,
			findings: []string{
				".metadata.annotations.kubectl.kubernetes.io/last-applied-configuration: " + string(EditsServerSet),
				".metadata.uid: " + string(EditsServerSet),
				".status: " + string(EditsStatus),
			}},
	})
}

func TestStatus(t *testing.T) {
	runCells(t, handmadeType(t), []cell{
		{name: "the cluster's goes to git", o: "status: {count: 1}", g: "status: {count: 1}", c: "status: {count: 2}", f: "status: {count: 2}"},
		{name: "git's is put right", o: "status: {count: 1}", g: "status: {count: 3}", c: "status: {count: 2}", f: "status: {count: 2}", findings: []string{".status: " + string(EditsStatus)}},
		{name: "git's is put right where none is kept", o: "spec: {size: 1}", g: "spec: {size: 2}, status: {count: 3}", c: "spec: {size: 1}",
			w: "spec: {size: 2}", f: "spec: {size: 2}", k: "spec: {size: 1}", set: []string{".spec.size"}, findings: []string{".status: " + string(EditsStatus)}},
	})
}

func TestMetadata(t *testing.T) {
	owner := "{apiVersion: apps/v1, kind: Deployment, name: d}"
	owner2 := "{apiVersion: apps/v2, kind: Deployment, name: d}"
	other := "{apiVersion: v1, kind: Pod, name: p, controller: true}"
	runCells(t, handmadeType(t), []cell{
		{name: "labels key by key", o: "meta: {labels: {a: x}}", g: "meta: {labels: {a: z}}", c: "meta: {labels: {a: x, b: x}}",
			w: "meta: {labels: {a: z, b: x}}", f: "meta: {labels: {a: z, b: x}}", k: "meta: {labels: {a: x, b: x}}", set: []string{".metadata.labels.a"}},
		{name: "labels: all removed in git", o: "meta: {labels: {a: x}}", g: "spec: {size: 1}", c: "meta: {labels: {a: x}}, spec: {size: 1}",
			w: "spec: {size: 1}", k: "meta: {labels: {a: x}}, spec: {size: 1}", remove: []string{".metadata.labels.a"}},
		{name: "labels: none and empty are one", o: "spec: {size: 1}", g: "meta: {labels: {}}, spec: {size: 1}", c: "spec: {size: 1}", b: "spec: {size: 1}"},
		{name: "labels: the last one removed in the cluster, another added in git", o: "meta: {labels: {a: x}}", g: "meta: {labels: {a: x, b: x}}", c: "spec: {size: 1}",
			w: "meta: {labels: {b: x}}, spec: {size: 1}", f: "meta: {labels: {b: x}}, spec: {size: 1}", k: "spec: {size: 1}", set: []string{".metadata.labels.b"}},
		{name: "a label that is no text", o: "meta: {labels: {a: x}}", g: "meta: {labels: {a: 1}}", c: "meta: {labels: {a: x}}", b: "meta: {labels: {a: x}}",
			findings: []string{".metadata.labels.a: " + string(UnfitForSchema)}},
		{name: "finalizers are a set", o: "meta: {finalizers: [a, b]}", g: "meta: {finalizers: [b, c]}", c: "meta: {finalizers: [d, a, b]}",
			w: "meta: {finalizers: [d, b, c]}", f: "meta: {finalizers: [d, b, c]}", k: "meta: {finalizers: [d, a, b]}",
			set: []string{`.metadata.finalizers[="c"]`}, remove: []string{`.metadata.finalizers[="a"]`}},
		{name: "owners are a set", o: "meta: {ownerReferences: [" + owner + "]}", g: "meta: {ownerReferences: [" + owner + ", " + other + "]}", c: "spec: {size: 1}",
			w: "meta: {ownerReferences: [" + other + "]}, spec: {size: 1}", f: "meta: {ownerReferences: [" + other + "]}, spec: {size: 1}", k: "spec: {size: 1}",
			set: []string{`.metadata.ownerReferences[apiVersion="v1",kind="Pod",name="p"]`}},
		{name: "an owner at another version is the same one", o: "meta: {ownerReferences: [" + owner + "]}", g: "meta: {ownerReferences: [" + owner2 + "]}",
			c: "meta: {ownerReferences: [" + owner + "]}", w: "meta: {ownerReferences: [" + owner2 + "]}", k: "meta: {ownerReferences: [" + owner + "]}",
			set:    []string{`.metadata.ownerReferences[apiVersion="apps/v2",kind="Deployment",name="d"]`},
			remove: []string{`.metadata.ownerReferences[apiVersion="apps/v1",kind="Deployment",name="d"]`}},
		{name: "an owner changed on both sides", o: "meta: {ownerReferences: [" + owner + "]}", g: "meta: {ownerReferences: [" + owner2 + "]}",
			c: "meta: {ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: d, controller: true}]}", b: "meta: {ownerReferences: [" + owner + "]}",
			conflicts: []string{`.metadata.ownerReferences[apiVersion="apps/v2",kind="Deployment",name="d"]: ` + ReasonChanged}},
		{name: "what only the server writes", o: "spec: {size: 1}", g: "meta: {resourceVersion: '7', generateName: x-}, spec: {size: 2}", c: "spec: {size: 1}",
			w: "spec: {size: 2}", b: "spec: {size: 2}", k: "spec: {size: 1}", set: []string{".spec.size"},
			findings: []string{".metadata.generateName: " + string(EditsServerSet), ".metadata.resourceVersion: " + string(EditsServerSet)}},
		{name: "last-applied", o: "meta: {annotations: {a: x}}", g: `meta: {annotations: {a: x, "kubectl.kubernetes.io/last-applied-configuration": x}}`,
			c: "meta: {annotations: {a: x}}", b: "meta: {annotations: {a: x}}",
			findings: []string{".metadata.annotations.kubectl.kubernetes.io/last-applied-configuration: " + string(EditsServerSet)}},
	})
}

func TestShaped(t *testing.T) {
	marker := "crmirror-redacted:v1:x"
	if !kube.ContainsRedaction(marker) {
		t.Fatal("not the marker")
	}
	shaped := func(paths ...string) func(*testing.T, *Input) {
		return func(t *testing.T, in *Input) { in.Shaped = pathSet(t, paths...) }
	}
	users := func(fields string) string { return "spec: {users: [{name: a, " + fields + "}]}" }
	pw := shaped(".spec.users[name=a].password")
	pwPath := `.spec.users[name="a"].password`
	runCells(t, handmadeType(t), []cell{
		{name: "added by a person", o: users("role: p"), g: users("role: p, password: s"), c: users("role: p"), b: users("role: p"), in: pw,
			findings: []string{pwPath + ": " + string(EditsShaped)}},
		{name: "removed by a person", o: users("password: d1"), g: users("role: p"), c: users("password: d1"), in: pw,
			w: users("password: d1, role: p"), b: users("password: d1, role: p"), k: users("password: d1"),
			set: []string{`.spec.users[name="a"].name`, `.spec.users[name="a"].role`}, findings: []string{pwPath + ": " + string(EditsShaped)}},
		{name: "changed by both", o: users("password: d1"), g: users("password: s"), c: users("password: d2"), b: users("password: d1"), in: pw,
			findings: []string{pwPath + ": " + string(EditsShaped)}},
		{name: "changed in the cluster", o: users("password: d1"), g: users("password: d1"), c: users("password: d2"), f: users("password: d2"), in: pw},
		{name: "its item removed in git", o: users("password: d1"), g: "spec: {users: []}", c: users("password: d1"), b: users("password: d1"), in: pw,
			conflicts: []string{`.spec.users[name="a"]: ` + ReasonShaped}},
		{name: "its item removed in the cluster", o: users("password: d1"), g: users("password: d1"), c: "spec: {users: []}", f: "spec: {users: []}", in: pw},
		{name: "its item added in git", o: "spec: {users: []}", g: users("password: s"), c: "spec: {users: []}", b: "spec: {users: []}", in: pw,
			conflicts: []string{`.spec.users[name="a"]: ` + ReasonShaped}},
		{name: "in an atomic list", o: "spec: {args: [a, b]}", g: "spec: {args: [a, c]}", c: "spec: {args: [a, b]}", b: "spec: {args: [a, b]}", in: shaped(".spec.args[#0]"),
			conflicts: []string{".spec.args: " + ReasonShaped}},
		{name: "in an atomic map", o: "spec: {selector: {a: x}}", g: "spec: {selector: {b: x}}", c: "spec: {selector: {a: x}}", b: "spec: {selector: {a: x}}",
			in: shaped(".spec.selector.hidden"), conflicts: []string{".spec.selector: " + ReasonShaped}},
		{name: "in a list by number", o: users("role: p"), g: users("role: q"), c: users("role: p"), b: users("role: p"), in: shaped(".spec.users[#0].password"),
			conflicts: []string{".spec.users: " + ReasonShaped}},
		{name: "a list's key", o: users("role: p"), g: users("role: q"), c: users("role: p"), b: users("role: p"), in: shaped(".spec.users[name=a].name"),
			conflicts: []string{".spec.users: " + ReasonShaped}},
		{name: "in a map that git removes", o: "spec: {size: 1, tags: {a: x}}", g: "spec: {size: 1}", c: "spec: {size: 1, tags: {a: x}}", in: shaped(".spec.tags.hidden"),
			w: "spec: {size: 1, tags: {}}", b: "spec: {size: 1, tags: {}}", k: "spec: {size: 1, tags: {a: x}}",
			remove: []string{".spec.tags.a"}, conflicts: []string{".spec.tags: " + ReasonShaped}},
		{name: "a marker out of place", o: "spec: {legacy: a}", g: "spec: {legacy: '" + marker + "'}", c: "spec: {legacy: a}", b: "spec: {legacy: a}",
			conflicts: []string{".spec.legacy: " + ReasonShaped}},
		{name: "an object that git creates", o: "-", g: users("password: s"), c: "-", b: "-", in: pw, conflicts: []string{": " + ReasonShaped}},
		{name: "an object that git creates with a marker", o: "-", g: users("password: '" + marker + "'"), c: "-", b: "-", conflicts: []string{": " + ReasonShaped}},
		{name: "an object that git creates without", o: "-", g: "spec: {size: 1}", c: "-", w: "spec: {size: 1}", k: "-", in: pw, action: CreateObject},
		{name: "an object that git deletes", o: users("password: d1"), g: "-", c: users("password: d1"), w: "-", k: users("password: d1"), in: pw, action: DeleteObject},
	})
}

// TestShapedIsNotShown puts a password into git and expects it in no conflict.
func TestShapedIsNotShown(t *testing.T) {
	secret := "spec: {users: [{name: a, role: p, password: s3cret}]}"
	for name, in := range map[string]Input{
		"an object created":      {Git: object(t, secret)},
		"an object deleted":      {Base: object(t, "spec: {size: 1}"), Git: object(t, secret)},
		"an item added":          {Base: object(t, "spec: {size: 1}"), Git: object(t, secret), Cluster: object(t, "spec: {size: 1, users: []}")},
		"a struct that is gone":  {Base: object(t, "spec: {size: 1}"), Git: object(t, secret), Cluster: object(t, "metadata: {name: x}")},
		"a field without a base": {Git: object(t, secret), Cluster: object(t, "spec: {users: [{name: a, role: p, password: d1}]}")},
	} {
		t.Run(name, func(t *testing.T) {
			in.Type, in.Shaped = handmadeType(t), pathSet(t, ".spec.users[name=a].password")
			d, err := Decide(in)
			if err != nil {
				t.Fatal(err)
			}
			if len(d.Conflicts) == 0 {
				t.Error("no conflict")
			}
			if s := fmt.Sprint(d.Conflicts); strings.Contains(s, "s3cret") {
				t.Errorf("a password in %s", s)
			}
		})
	}
}

func TestJudge(t *testing.T) {
	judge := func(path string, toCluster bool) func(*testing.T, *Input) {
		return func(_ *testing.T, in *Input) {
			in.Judge = func(m Move) string {
				if m.Path.String() == path && m.ToCluster == toCluster {
					return "owned by another"
				}
				return ""
			}
		}
	}
	runCells(t, handmadeType(t), []cell{
		{name: "git moved", o: "spec: {size: 1}", g: "spec: {size: 2}", c: "spec: {size: 1}", b: "spec: {size: 1}", in: judge(".spec.size", true),
			conflicts: []string{".spec.size: owned by another"}},
		{name: "cluster moved", o: "spec: {size: 1}", g: "spec: {size: 1}", c: "spec: {size: 2}", in: judge(".spec.size", false),
			conflicts: []string{".spec.size: owned by another"}},
		{name: "the other direction", o: "spec: {size: 1}", g: "spec: {size: 1}", c: "spec: {size: 2}", f: "spec: {size: 2}", in: judge(".spec.size", true)},
		{name: "agreed is not asked for", o: "spec: {size: 1}", g: "spec: {size: 2}", c: "spec: {size: 2}", in: judge(".spec.size", true)},
		{name: "a field of a struct that git removes", o: "spec: {size: 1, tls: {secret: a, host: b}}", g: "spec: {size: 1}", c: "spec: {size: 1, tls: {secret: a, host: b}}",
			b: "spec: {size: 1, tls: {secret: a, host: b}}", in: judge(".spec.tls.host", true), conflicts: []string{".spec.tls: owned by another"}},
		{name: "a key of a map that git removes", o: "spec: {size: 1, tags: {a: x, b: x}}", g: "spec: {size: 1}", c: "spec: {size: 1, tags: {a: x, b: x}}",
			w: "spec: {size: 1, tags: {b: x}}", f: "spec: {size: 1}", b: "spec: {size: 1, tags: {b: x}}", k: "spec: {size: 1, tags: {a: x, b: x}}",
			remove: []string{".spec.tags.a"}, in: judge(".spec.tags.b", true), conflicts: []string{".spec.tags.b: owned by another"}},
		{name: "a map as such, that the cluster removes", o: "spec: {size: 1, tags: {a: x}}", g: "spec: {size: 1, tags: {a: x}}", c: "spec: {size: 1}",
			f: "spec: {size: 1, tags: {}}", in: judge(".spec.tags", false), conflicts: []string{".spec.tags: owned by another"}},
	})
	t.Run("what it is asked", func(t *testing.T) {
		var asked []string
		in := Input{
			Base: object(t, "spec: {size: 1, legacy: a, tls: {host: b}}"), Git: object(t, "spec: {size: 1, tls: {host: b}, users: [{name: a}]}"),
			Cluster: object(t, "spec: {size: 2, legacy: a}"), Type: handmadeType(t),
			Judge: func(m Move) string {
				s := m.Path.String()
				if m.ToCluster {
					s += " to the cluster"
				}
				if m.Removed {
					s += " goes"
				}
				asked = append(asked, s)
				return ""
			},
		}
		if _, err := Decide(in); err != nil {
			t.Fatal(err)
		}
		want := []string{
			".spec.legacy to the cluster goes", ".spec.size", ".spec.tls goes", ".spec.tls.host goes",
			`.spec.users[name="a"] to the cluster`, `.spec.users[name="a"].name to the cluster`,
		}
		if !slices.Equal(asked, want) {
			t.Errorf("asked %q, want %q", asked, want)
		}
	})
}

func TestUnknown(t *testing.T) {
	unknown := func(paths ...string) func(*testing.T, *Input) {
		return func(t *testing.T, in *Input) { in.Unknown.Fields = pathSet(t, paths...) }
	}
	runCells(t, handmadeType(t), []cell{
		{name: "equal: agreed", o: "spec: {legacy: a}", g: "spec: {size: 1, legacy: a}", c: "spec: {size: 1, legacy: a}", in: unknown(".spec.size")},
		{name: "gone on both: agreed", o: "spec: {legacy: a}", g: "spec: {legacy: a}", c: "spec: {legacy: a}", in: unknown(".spec.size")},
		{name: "different: a conflict that stays", o: "spec: {legacy: a}", g: "spec: {size: 1, legacy: a}", c: "spec: {legacy: a}", b: "spec: {legacy: a}", in: unknown(".spec.size"),
			conflicts: []string{".spec.size: " + ReasonUnknown}, unknown: []string{".spec.size"}},
		{name: "base's value does not count", o: "spec: {size: 1}", g: "spec: {size: 1}", c: "spec: {size: 2}", b: "spec: {}", in: unknown(".spec.size"),
			conflicts: []string{".spec.size: " + ReasonUnknown}, unknown: []string{".spec.size"}},
		{name: "below: each field", o: "spec: {}", g: "spec: {tls: {secret: a, host: b}}", c: "spec: {tls: {secret: a, host: c}}", b: "spec: {tls: {secret: a}}",
			in: unknown(".spec.tls"), conflicts: []string{".spec.tls.host: " + ReasonUnknown}, unknown: []string{".spec.tls.host"}},
		{name: "above: a struct with an unknown field goes", o: "spec: {size: 1, tls: {secret: a}}", g: "spec: {size: 1}", c: "spec: {size: 1, tls: {secret: a}}",
			b: "spec: {size: 1, tls: {secret: a}}", in: unknown(".spec.tls.host"), conflicts: []string{".spec.tls: " + ReasonUnknown}, unknown: []string{".spec.tls.host"}},
		{name: "an item of a list", o: "spec: {users: []}", g: "spec: {users: [{name: a}]}", c: "spec: {users: []}", b: "spec: {users: []}",
			in: unknown(".spec.users[name=a]"), conflicts: []string{`.spec.users[name="a"]: ` + ReasonUnknown}, unknown: []string{`.spec.users[name="a"]`}},
	})
}
