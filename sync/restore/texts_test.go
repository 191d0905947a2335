package restore

import (
	"strings"
	"testing"

	"github.com/crmirror/crmirror/gitstore"
)

// texts are both sides of what differs of an object.
func (w *scene) texts(opts Options, name string) (git, cluster string) {
	w.t.Helper()
	snapshot, err := ReadSnapshot(w.t.Context(), w, gitstore.Hash{1}, opts.RedactKey)
	if err != nil {
		w.t.Fatal(err)
	}
	v, err := Verify(w.t.Context(), snapshot, w, &opts)
	if err != nil {
		w.t.Fatal(err)
	}
	differ, err := NewDiffer(w.t.Context(), snapshot, w, &opts)
	if err != nil {
		w.t.Fatal(err)
	}
	for i := range v.Differences {
		if d := &v.Differences[i]; d.Key.String() == name {
			old, new, err := differ.Texts(w.t.Context(), d)
			if err != nil {
				w.t.Fatal(err)
			}
			return string(old), string(new)
		}
	}
	w.t.Fatalf("%s is no difference; they are %+v", name, v.Differences)
	return "", ""
}

func TestTexts(t *testing.T) {
	w := shop(t)
	w.git(widget("shop", "a", "1"), nil)
	w.git(widget("shop", "b", "1"), nil)
	w.live(widgetCRD("v1"))
	w.live(namespaceText("test"))
	w.live(widget("test", "a", "2", "  finalizers: [x.io/y]\n"))
	opts := Options{MapNamespaces: map[string]string{"shop": "test"}, StripFinalizers: true}
	git, cluster := w.texts(opts, "widgets.example.com test/a")
	if want := widget("test", "a", "1"); git != want {
		t.Errorf("git:\n%s\nwant\n%s", git, want)
	}
	if want := widget("test", "a", "2"); cluster != want {
		t.Errorf("cluster:\n%s\nwant\n%s", cluster, want)
	}
	if git, cluster = w.texts(opts, "widgets.example.com test/b"); git == "" || cluster != "" {
		t.Errorf("of an object that the cluster lacks: git %q, cluster %q", git, cluster)
	}
}

func TestTextsHideRedacted(t *testing.T) {
	w, key := redactedScene(t)
	w.live(namespaceText("shop"))
	w.live(widgetCRD("v1"))
	w.live(widget("shop", "s", "2") + "  password: other-one\n")
	w.live("apiVersion: v1\nkind: Secret\nmetadata: {name: core, namespace: shop, labels: {a: b}}\ndata: {a: b3RoZXItb25l}\n")
	for _, k := range [][]byte{nil, key, []byte("wrong")} {
		for _, name := range []string{"widgets.example.com shop/s", "secrets shop/core"} {
			git, cluster := w.texts(Options{RedactKey: k}, name)
			for _, secret := range []string{"hunter2", "other-one", "b3RoZXItb25l", "aHVudGVyMg"} {
				if strings.Contains(git+cluster, secret) {
					t.Errorf("with key %q, %s is shown of %s:\n%s\n%s", k, secret, name, git, cluster)
				}
			}
			if differ := digests(git) != digests(cluster); differ != (string(k) == string(key)) {
				t.Errorf("with key %q, the digests of %s differ: %v\n%s\n%s", k, name, differ, git, cluster)
			}
		}
	}
}

// digests are the lines of a text that have one.
func digests(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if strings.Contains(line, "crmirror-redacted:") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}
