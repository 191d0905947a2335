package sync

import (
	"strings"
	"testing"

	"github.com/crmirror/crmirror/kube"
)

func certificate(namespace, name string) kube.Key {
	return kube.Key{Group: "cert-manager.io", Resource: "certificates", Namespace: namespace, Name: name}
}

func TestPathOf(t *testing.T) {
	long := strings.Repeat("a", 250)
	tests := []struct {
		name string
		key  kube.Key
		want string
	}{
		{"namespaced", certificate("shop", "frontend-tls"), "namespaces/shop/certificates.cert-manager.io/frontend-tls.yaml"},
		{"cluster-scoped", kube.Key{Group: "cert-manager.io", Resource: "clusterissuers", Name: "le"}, "cluster/clusterissuers.cert-manager.io/le.yaml"},
		{"core group", kube.Key{Resource: "configmaps", Namespace: "shop", Name: "app"}, "namespaces/shop/configmaps/app.yaml"},
		{"a namespace itself", kube.Key{Resource: "namespaces", Name: "shop"}, "cluster/namespaces/shop.yaml"},
		{"dots stay", certificate("shop", "www.example.com"), "namespaces/shop/certificates.cert-manager.io/www.example.com.yaml"},
		{"colon", certificate("shop", "system:node"), "namespaces/shop/certificates.cert-manager.io/system%3Anode.yaml"},
		{"upper case", certificate("shop", "Admin"), "namespaces/shop/certificates.cert-manager.io/%41dmin.yaml"},
		{"percent", certificate("shop", "50%"), "namespaces/shop/certificates.cert-manager.io/50%25.yaml"},
		{"tilde", certificate("shop", "a~b"), "namespaces/shop/certificates.cert-manager.io/a%7Eb.yaml"},
		{"slash", certificate("shop", "a/b"), "namespaces/shop/certificates.cert-manager.io/a%2Fb.yaml"},
		{"kustomization", certificate("shop", "kustomization"), "namespaces/shop/certificates.cert-manager.io/%6Bustomization.yaml"},
		{"only the whole word", certificate("shop", "kustomization2"), "namespaces/shop/certificates.cert-manager.io/kustomization2.yaml"},
		{"device", certificate("shop", "con"), "namespaces/shop/certificates.cert-manager.io/%63on.yaml"},
		{"device with extension", certificate("shop", "nul.example.com"), "namespaces/shop/certificates.cert-manager.io/%6Eul.example.com.yaml"},
		{"numbered device", certificate("lpt9", "com1"), "namespaces/%6Cpt9/certificates.cert-manager.io/%63om1.yaml"},
		{"not a device", certificate("lpt", "com10"), "namespaces/lpt/certificates.cert-manager.io/com10.yaml"},
		{"device as plural", kube.Key{Group: "x.io", Resource: "aux", Name: "a"}, "cluster/%61ux.x.io/a.yaml"},
		{"dot", certificate(".", ".."), "namespaces/%2E/certificates.cert-manager.io/%2E%2E.yaml"},
		{"git's folder", certificate(".git", "a"), "namespaces/%2Egit/certificates.cert-manager.io/a.yaml"},
		{"trailing dot", certificate("shop.", "a "), "namespaces/shop%2E/certificates.cert-manager.io/a%20.yaml"},
		{"longest whole name", certificate("shop", long), "namespaces/shop/certificates.cert-manager.io/" + long + ".yaml"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := PathOf(tt.key)
			if got != tt.want {
				t.Fatalf("PathOf(%v) = %q, want %q", tt.key, got, tt.want)
			}
			key, isCut, err := KeyOf(got)
			if err != nil || isCut || key != tt.key {
				t.Errorf("KeyOf(%q) = %v, %v, %v, want %v whole", got, key, isCut, err, tt.key)
			}
		})
	}
}

func TestLongNamesAreCut(t *testing.T) {
	const digest = 33
	name := strings.Repeat("a", 252)
	tests := []struct {
		name string
		key  kube.Key
		know kube.Key // what the path still holds
	}{
		{"name of 253 bytes", certificate("shop", name+"b"), certificate("shop", "")},
		{"escape at the cut", certificate("shop", name[:250-digest-1]+"::"+name), certificate("shop", "")},
		{"half an escape before the cut", certificate("shop", name[:250-digest-2]+"::"+name), certificate("shop", "")},
		{"whole escape before the cut", certificate("shop", name[:250-digest-3]+"::"+name), certificate("shop", "")},
		{"escapes make it long", certificate("shop", strings.Repeat(":", 100)), certificate("shop", "")},
		{"plural and group", kube.Key{Group: name, Resource: strings.Repeat("b", 63), Name: "a"}, kube.Key{Resource: strings.Repeat("b", 63), Name: "a"}},
		{"namespace", certificate(strings.Repeat("_", 90), "a"), certificate("", "a")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := PathOf(tt.key)
			for _, seg := range strings.Split(path, "/") {
				if len(seg) > 255 {
					t.Errorf("segment of %d bytes: %s", len(seg), seg)
				}
			}
			key, isCut, err := KeyOf(path)
			if err != nil || !isCut || key != tt.know {
				t.Errorf("KeyOf(%q) = %v, %v, %v, want %v cut", path, key, isCut, err, tt.know)
			}
			k := tt.key
			got, err := KeyOfFile(path, k.Group, k.Namespace, k.Name)
			if err != nil || got != k {
				t.Errorf("KeyOfFile(%q) = %v, %v, want %v", path, got, err, k)
			}
			if got, err := KeyOfFile(path, k.Group+"x", k.Namespace+"x", k.Name+"x"); err == nil {
				t.Errorf("KeyOfFile(%q) with other content = %v, want an error", path, got)
			}
		})
	}
}

func TestKeyOfFile(t *testing.T) {
	path := "namespaces/shop/certificates.cert-manager.io/a.yaml"
	tests := []struct {
		name, group, namespace, object string
		ok                             bool
	}{
		{"same", "cert-manager.io", "shop", "a", true},
		{"other group", "example.com", "shop", "a", false},
		{"other namespace", "cert-manager.io", "web", "a", false},
		{"no namespace", "cert-manager.io", "", "a", false},
		{"other name", "cert-manager.io", "shop", "b", false},
	}
	for _, tt := range tests {
		if _, err := KeyOfFile(path, tt.group, tt.namespace, tt.object); (err == nil) != tt.ok {
			t.Errorf("%s: err = %v, want ok = %v", tt.name, err, tt.ok)
		}
	}
}

func TestForeignPaths(t *testing.T) {
	digest := "~" + strings.Repeat("0", 32)
	for _, path := range []string{
		"", "README.md", MarkerName, "cluster/a.yaml", "cluster//a.yaml", "/cluster/x/a.yaml",
		"cluster/x/.yaml", "cluster/x/a.yml", "cluster/x/a", "cluster/x/a.yaml/b.yaml",
		"cluster/x/kustomization.yaml", "cluster/x/Kustomization", "cluster/x/con.yaml", "cluster/x/A.yaml",
		"cluster/x/%6bustomization.yaml", "cluster/x/%61.yaml", "cluster/x/%6.yaml", "cluster/x/%.yaml",
		"cluster/x./a.yaml", "cluster/.x/a.yaml", "cluster/../a.yaml", "cluster/x./../a.yaml",
		"namespaces/shop/a.yaml", "namespaces//x/a.yaml", "namespaces/con/x/a.yaml", "namespaces/../x/a.yaml",
		"cluster/x/a" + digest + ".yaml", // too short to have been cut
		"cluster/x/" + strings.Repeat("a", 251) + ".yaml",
		"cluster/x/" + strings.Repeat("A", 217) + digest + ".yaml",
		"cluster/x/" + strings.Repeat("a", 217) + strings.ToUpper("~"+strings.Repeat("a", 32)) + ".yaml",
	} {
		if key, _, err := KeyOf(path); err == nil {
			t.Errorf("KeyOf(%q) = %v, want an error", path, key)
		}
	}
}

// TestPathsDiffer has the pairs that a case-insensitive file system, or
// careless joining, would put into one file.
func TestPathsDiffer(t *testing.T) {
	long := strings.Repeat("a", 240)
	keys := []kube.Key{
		{Resource: "a", Group: "b.c", Name: "x"}, {Resource: "a.b", Group: "c", Name: "x"}, {Resource: "a.b.c", Name: "x"},
		{Resource: "a", Name: "x"}, {Resource: "a", Name: "X"}, {Resource: "a", Name: "%58"}, {Resource: "a", Name: "%78"},
		{Resource: "a", Namespace: "x", Name: "y"}, {Resource: "x", Namespace: "a", Name: "y"},
		{Resource: "a", Name: long + strings.Repeat("b", 12)}, {Resource: "a", Name: long + strings.Repeat("b", 11) + "c"},
		{Resource: "a", Name: "J"}, {Resource: "a", Name: "j"}, {Resource: "a", Name: "%4A"}, {Resource: "a", Name: "%4a"},
		{Resource: "a", Name: "kustomization"}, {Resource: "a", Name: "%6Bustomization"}, {Resource: "a", Name: "\xff"}, {Resource: "a", Name: "."},
	}
	seen := map[string]kube.Key{}
	for _, k := range keys {
		path := strings.ToLower(PathOf(k))
		if other, ok := seen[path]; ok {
			t.Errorf("%v and %v share the path %s", other, k, path)
		}
		seen[path] = k
	}
}

func FuzzPath(f *testing.F) {
	f.Add("cert-manager.io", "certificates", "shop", "a", "cert-manager.io", "certificates", "shop", "A")
	f.Add("", "a.b", "", "con.x", "b", "a", ".", strings.Repeat(":", 100))
	f.Add("io", "x", "", strings.Repeat("a", 253), "io", "x", "", strings.Repeat("a", 252)+"b")
	f.Fuzz(func(t *testing.T, g1, r1, ns1, n1, g2, r2, ns2, n2 string) {
		a := kube.Key{Group: g1, Resource: r1, Namespace: ns1, Name: n1}
		b := kube.Key{Group: g2, Resource: r2, Namespace: ns2, Name: n2}
		for _, k := range []kube.Key{a, b} {
			if k.Resource == "" || k.Name == "" || len(k.Resource) > 63 {
				return
			}
			path := PathOf(k)
			got, isCut, err := KeyOf(path)
			if err != nil || !isCut && got != k {
				t.Fatalf("KeyOf(PathOf(%#v)) = %#v, %v", k, got, err)
			}
			if got, err := KeyOfFile(path, k.Group, k.Namespace, k.Name); err != nil || got != k {
				t.Fatalf("KeyOfFile(%q) = %#v, %v, want %#v", path, got, err, k)
			}
		}
		if pa, pb := PathOf(a), PathOf(b); a != b && strings.EqualFold(pa, pb) {
			t.Fatalf("%#v and %#v share the path %s", a, b, pa)
		}
	})
}

// FuzzKeyOf feeds paths as a person could make them: what is accepted is
// exactly what PathOf writes.
func FuzzKeyOf(f *testing.F) {
	f.Add("namespaces/shop/certificates.cert-manager.io/a.yaml")
	f.Add("cluster/%61ux.x.io/%6Bustomization.yaml")
	f.Fuzz(func(t *testing.T, path string) {
		key, isCut, err := KeyOf(path)
		if err == nil && !isCut && PathOf(key) != path {
			t.Errorf("KeyOf accepted %q, PathOf writes %q", path, PathOf(key))
		}
	})
}

// BenchmarkKeyOf is what reading a tree costs per file.
func BenchmarkKeyOf(b *testing.B) {
	path := PathOf(certificate("shop", "frontend-tls"))
	for b.Loop() {
		if _, _, err := KeyOf(path); err != nil {
			b.Fatal(err)
		}
	}
}
