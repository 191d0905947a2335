package threeway

import (
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/crmirror/crmirror/kube"
)

// TestProperties edits random objects on both sides and checks every decision against what
// must hold of all.
func TestProperties(t *testing.T) { checkProperties(t, 300) }

// checkProperties makes so many rounds with each type.
func checkProperties(t *testing.T, rounds int) {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	corpus := filepath.Join("..", "..", "testdata", "corpus")
	for name, typ := range map[string]typed.ParseableType{
		"handmade":      handmadeType(t),
		"deduced":       typed.DeducedParseableType,
		"stores":        crdType(t, filepath.Join(corpus, "shop", "crds", "stores.yaml"), "v1"),
		"orders":        crdType(t, filepath.Join(corpus, "shop", "crds", "orders.yaml"), "v1"),
		"products":      crdType(t, filepath.Join(corpus, "shop", "crds", "products.yaml"), "v1"),
		"routes":        crdType(t, filepath.Join(corpus, "mesh", "crds", "routes.yaml"), "v1"),
		"routes-alpha":  crdType(t, filepath.Join(corpus, "mesh", "crds", "routes.yaml"), "v1alpha1"),
		"certificates":  crdType(t, filepath.Join(corpus, "certs", "crds", "certificates.yaml"), "v1"),
		"dashboards":    crdType(t, filepath.Join(corpus, "dashboards", "crds", "dashboards.yaml"), "v1beta1"),
		"backupstorage": crdType(t, filepath.Join(corpus, "backup", "crds", "locations.yaml"), "v2"),
	} {
		t.Run(name, func(t *testing.T) {
			r := &random{Rand: rand.New(rand.NewPCG(seed, 1)), types: types{schema: typ.Schema}, typ: typ.TypeRef}
			for i := range rounds {
				r.wrong = i%5 == 0
				c := checker{t: t, r: r, in: r.input(typ)}
				c.check()
				if t.Failed() {
					t.Fatalf("seed %d\nbase    %v\ngit     %v\ncluster %v\nunknown %v", seed, c.in.Base, c.in.Git, c.in.Cluster, c.in.Unknown.Fields)
				}
			}
		})
	}
}

// input makes three contents of an object, some of them none, with some places unknown in base,
// and at times a judge.
func (r *random) input(typ typed.ParseableType) Input {
	base := r.object()
	in := Input{Base: base, Git: r.edited(base), Cluster: r.edited(base), Type: typ, Unknown: Unknown{Fields: &fieldpath.Set{}}}
	for _, side := range []*map[string]any{&in.Base, &in.Git, &in.Cluster} {
		if r.one(12) {
			*side = nil
		}
	}
	if in.Base != nil && r.one(6) {
		r.types.leaves(typ.TypeRef, nil, in.Base, func(p fieldpath.Path) {
			if len(p) > 1 && *p[0].FieldName == "spec" && r.one(4) {
				in.Unknown.Fields.Insert(p[:1+r.IntN(len(p)-1)+1].Copy())
			}
		})
	}
	in.Unknown.Object = r.one(20)
	if in.Base != nil && r.one(4) {
		in.Shaped = &fieldpath.Set{}
		r.types.leaves(typ.TypeRef, nil, in.Base, func(p fieldpath.Path) {
			if len(p) > 1 && *p[0].FieldName == "spec" && r.one(4) {
				in.Shaped.Insert(p.Copy())
			}
		})
	}
	if r.one(6) {
		salt := r.IntN(5)
		in.Judge = func(m Move) string {
			if (len(m.Path.String())+salt)%5 == 0 && len(m.Path) > 0 {
				return "owned by another"
			}
			return ""
		}
	}
	return in
}

type checker struct {
	t  *testing.T
	r  *random
	in Input
	d  Decision
}

func (c *checker) check() {
	d, err := Decide(c.in)
	if err != nil {
		c.t.Fatal(err)
	}
	c.d = d
	c.invents()
	c.loses()
	c.conflicts()
	c.applies()
	c.settles()
	c.retries()
	c.spares()
	if c.in.Judge == nil && c.in.Shaped == nil && !c.r.wrong {
		if len(c.d.Findings) > 0 {
			c.t.Errorf("findings without a cause: %v", c.d.Findings)
		}
		c.mirrors()
	}
}

func (c *checker) same(a, b map[string]any) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	d := newDecider(c.in)
	return d.sameObject(objectValue(a), objectValue(b))
}

// leaves calls f with each leaf of a content, by the types that Decide goes by.
func (c *checker) leaves(obj map[string]any, f func(fieldpath.Path)) {
	for key, v := range obj {
		typ := c.r.types.field(c.r.typ, key)
		if key == "metadata" {
			typ = metadataType()
		}
		c.r.types.leaves(typ, fieldpath.Path{fieldpath.FieldNameElement(key)}, v, f)
	}
}

// invents checks that each leaf of each result is one of the inputs'.
func (c *checker) invents() {
	for name, result := range map[string]map[string]any{"cluster": c.d.Cluster, "file": c.d.File, "base": c.d.Base, "kept": c.d.Kept} {
		c.leaves(result, func(p fieldpath.Path) {
			v := at(result, p)
			for _, obj := range []map[string]any{c.in.Base, c.in.Git, c.in.Cluster} {
				from := at(obj, p)
				if equal(from, v) || isEmpty(v.v) && from.ok && sameKind(from.v, v.v) {
					return
				}
			}
			c.t.Errorf("%s: %s is nobody's: %v", name, p, v.v)
		})
	}
}

func sameKind(a, b any) bool {
	_, x := a.(map[string]any)
	_, y := b.(map[string]any)
	return x == y
}

// loses checks that a leaf outside of conflicts has the value of the side that moved it,
// in all results.
func (c *checker) loses() {
	if c.in.Base == nil || c.in.Git == nil || c.in.Cluster == nil || c.in.Unknown.Object {
		return
	}
	check := func(p fieldpath.Path) {
		for _, con := range c.d.Conflicts {
			if prefix(con.Path, p) || prefix(p, con.Path) {
				return
			}
		}
		for _, find := range c.d.Findings {
			if prefix(find.Path, p) || prefix(p, find.Path) {
				return
			}
		}
		unknown := false
		c.in.Unknown.Fields.Iterate(func(u fieldpath.Path) { unknown = unknown || prefix(u, p) || prefix(p, u) })
		if unknown {
			return
		}
		o, g, cl := at(c.in.Base, p), at(c.in.Git, p), at(c.in.Cluster, p)
		for _, v := range []value{o, g, cl} {
			if v.ok && (isContainer(v.v) && (!isEmpty(v.v) || p[0].FieldName != nil && *p[0].FieldName == "metadata")) {
				return // looked at leaf by leaf
			}
		}
		want := g
		switch {
		case equal(g, cl):
		case equal(g, o):
			want = cl
		case !equal(cl, o):
			c.t.Errorf("%s: no conflict, although all differ: %v %v %v", p, o, g, cl)
			return
		}
		for name, result := range map[string]map[string]any{"cluster": c.d.Cluster, "file": c.d.File, "base": c.d.Base} {
			got := at(result, p)
			// A container without content may have got some from the other side.
			if filled := isEmpty(want.v) && got.ok || isEmpty(o.v) && o.ok; !filled && !equal(got, want) {
				c.t.Errorf("%s: %s is %v, want %v of %v %v %v", name, p, got, want, o, g, cl)
			}
		}
	}
	for _, obj := range []map[string]any{c.in.Base, c.in.Git, c.in.Cluster} {
		c.leaves(obj, check)
	}
}

func isContainer(v any) bool {
	switch v.(type) {
	case map[string]any, []any:
		return true
	}
	return false
}

func prefix(p, of fieldpath.Path) bool {
	return len(p) <= len(of) && p.Equals(of[:len(p)])
}

// conflicts checks that each is one.
func (c *checker) conflicts() {
	for _, con := range c.d.Conflicts {
		if len(con.Path) == 0 || con.Reason == "owned by another" || con.Git.Hidden || con.Cluster.Hidden {
			continue
		}
		val := func(v Value) value { return value{ok: v.Present, v: v.V} }
		o, g, cl := val(con.Base), val(con.Git), val(con.Cluster)
		if equal(g, cl) || con.Base.Known && (equal(o, g) || equal(o, cl)) {
			c.t.Errorf("false conflict %v", con)
		}
	}
}

// applies checks that Set and Remove turn the cluster's content into what was decided.
func (c *checker) applies() {
	if c.in.Cluster == nil || c.d.Object != None {
		if !c.d.Set.Empty() || !c.d.Remove.Empty() {
			c.t.Error("fields to set or remove without an object")
		}
		return
	}
	if got := applied(c.in.Cluster, c.d); !c.same(got, c.d.Cluster) {
		c.t.Errorf("set %v\nremove %v\ngive %s", c.d.Set, c.d.Remove, cmp.Diff(c.d.Cluster, got))
	}
	if c.d.Remove.Empty() && !c.r.wrong {
		in := c.in
		in.Cluster, in.Git = withoutOwners(in.Cluster), withoutOwners(in.Git)
		in.Base = withoutOwners(in.Base)
		d, err := Decide(in)
		if err != nil {
			c.t.Fatal(err)
		}
		if d.Object != None || setsNull(d) {
			return
		}
		got, err := payload(d, in)
		if err != nil {
			c.t.Errorf("set %v: %v", d.Set, err)
		} else if m, _ := got.(map[string]any); !c.same(m, d.Cluster) {
			c.t.Errorf("set %v as a payload gives %s", d.Set, cmp.Diff(d.Cluster, m))
		}
	}
}

// setsNull tells whether a field becomes null, which a payload does not say of a map or list.
func setsNull(d Decision) bool {
	null := false
	d.Set.Iterate(func(p fieldpath.Path) {
		v := at(d.Cluster, p)
		null = null || v.ok && v.v == nil
	})
	return null
}

// withoutOwners leaves out what a schema tells apart by the uid.
func withoutOwners(obj map[string]any) map[string]any {
	if obj == nil {
		return nil
	}
	out := clone(obj).(map[string]any)
	delete(out["metadata"].(map[string]any), "ownerReferences")
	return out
}

// spares checks that nothing dropped or redacted is set or removed.
func (c *checker) spares() {
	if c.in.Shaped == nil {
		return
	}
	c.in.Shaped.Iterate(func(s fieldpath.Path) {
		for _, moved := range []*fieldpath.Set{c.d.Set, c.d.Remove} {
			moved.Iterate(func(p fieldpath.Path) {
				if prefix(s, p) || prefix(p, s) {
					c.t.Errorf("%s is shaped, %s moves", s, p)
				}
			})
		}
	})
}

// settles checks that deciding over the results is silent but for the same conflicts.
func (c *checker) settles() {
	again := c.in
	again.Base, again.Git, again.Cluster, again.Unknown = c.d.Base, c.d.File, c.d.Cluster, c.d.Unknown
	d, err := Decide(again)
	if err != nil {
		c.t.Fatal(err)
	}
	if !d.Set.Empty() || !d.Remove.Empty() || d.Object != None {
		c.t.Errorf("does not settle: set %v, remove %v, %s", d.Set, d.Remove, d.Object)
	}
	if !kube.EqualValues(any(d.File), any(c.d.File)) || !kube.EqualValues(any(d.Cluster), any(c.d.Cluster)) || !kube.EqualValues(any(d.Base), any(c.d.Base)) {
		c.t.Errorf("contents do not settle:\nfile %s\ncluster %s\nbase %s", cmp.Diff(c.d.File, d.File),
			cmp.Diff(c.d.Cluster, d.Cluster), cmp.Diff(c.d.Base, d.Base))
	}
	if a, b := reports(c.d), reports(d); !cmp.Equal(a, b) {
		c.t.Errorf("other conflicts and findings the second time: %s", cmp.Diff(a, b))
	}
	if d.Unknown.Object != c.d.Unknown.Object || !d.Unknown.Fields.Equals(c.d.Unknown.Fields) {
		c.t.Errorf("unknown does not settle: %v, then %v", c.d.Unknown.Fields, d.Unknown.Fields)
	}
}

// retries checks that a change which has not landed is decided the same again.
func (c *checker) retries() {
	again := c.in
	again.Base, again.Git, again.Unknown = c.d.Kept, c.d.File, c.d.Unknown
	d, err := Decide(again)
	if err != nil {
		c.t.Fatal(err)
	}
	wantObject := c.d.Object
	if wantObject == CreateFile || wantObject == DeleteFile {
		wantObject = None
	}
	if !d.Set.Equals(c.d.Set) || !d.Remove.Equals(c.d.Remove) || d.Object != wantObject || !kube.EqualValues(any(d.File), any(c.d.File)) {
		c.t.Errorf("decided otherwise again: set %v, then %v; remove %v, then %v; %s, then %s; file %s",
			c.d.Set, d.Set, c.d.Remove, d.Remove, c.d.Object, d.Object, cmp.Diff(c.d.File, d.File))
	}
}

// mirrors checks that what holds of git holds of the cluster.
func (c *checker) mirrors() {
	in := c.in
	in.Git, in.Cluster = c.in.Cluster, c.in.Git
	d, err := Decide(in)
	if err != nil {
		c.t.Fatal(err)
	}
	if !c.same(d.File, c.d.Cluster) || !c.same(d.Cluster, c.d.File) || !c.same(d.Base, c.d.Base) || len(d.Conflicts) != len(c.d.Conflicts) {
		c.t.Errorf("not symmetric: cluster %s, file %s, base %s", cmp.Diff(c.d.Cluster, d.File), cmp.Diff(c.d.File, d.Cluster), cmp.Diff(c.d.Base, d.Base))
	}
}

// reports are the conflicts and findings as text.
func reports(d Decision) []string {
	var out []string
	for _, c := range d.Conflicts {
		out = append(out, c.Path.String()+" "+c.Reason)
	}
	for _, f := range d.Findings {
		out = append(out, f.Path.String()+" "+string(f.Kind))
	}
	return out
}
