package sync

import (
	"fmt"
	"testing"
)

// TestRemovalDies: an agent dies that was to remove an item which git took away, and a controller
// goes on. What it made of the item, of which git still is the owner, is not taken for agreed and
// removed; where the removal cannot have landed, nobody is asked about it.
func TestRemovalDies(t *testing.T) {
	const item = `.spec.ports[port=80,protocol="TCP"]`
	spec := func(size int, note string) string {
		if note == "" {
			return fmt.Sprintf("{mode: auto, replicas: 1, size: %d}", size)
		}
		return fmt.Sprintf("{mode: auto, ports: [{port: 80, protocol: TCP, note: %s}], replicas: 1, size: %d}", note, size)
	}
	for _, tt := range []struct {
		name       string
		step       Step
		controller string // its patch of the spec; "" for none
		size       int
		note       string // of the item in the cluster in the end; "" when there is none
		base       Shown  // of the item, in the conflict about it; "" for none
	}{
		{"announced, the item changed", StepAnnounced, "{ports: [{port: 80, protocol: TCP, note: theirs}]}", 1, "theirs", `{"note":"ours","port":80,"protocol":"TCP"}`},
		{"announced, something else changed", StepAnnounced, "{size: 5}", 5, "", ""},
		{"written, the item made anew", StepWritten, "{ports: [{port: 80, protocol: TCP, note: ours}]}", 1, "ours", unknown},
		{"written, something else changed", StepWritten, "{size: 5}", 5, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := agreed(t, map[string]string{"a": "{size: 1}"})
			p.edit("open", map[string]string{"a": spec(1, "ours")})
			p.settled()
			p.edit("close", map[string]string{"a": spec(1, "")})
			p.dies(tt.step)
			p.patch("controller", "a", tt.controller)
			p.opts.Reached, p.cache = nil, t.TempDir()
			p.agent()
			report := p.settled()
			cluster := p.spec("a")
			if want := p.flow(p.decode(p.text("a", spec(tt.size, tt.note))).Object["spec"]); cluster != want {
				t.Errorf("the cluster has %s, want %s", cluster, want)
			}
			if git, want := p.inGit("a"), p.flow(p.decode(p.text("a", spec(tt.size, ""))).Object["spec"]); git != want {
				t.Errorf("git has %s, want %s", git, want)
			}
			if tt.base == "" {
				p.wantConflicts(report)
				return
			}
			p.wantConflicts(report, item)
			if c := report.Conflicts; len(c) == 1 && c[0].Base != tt.base {
				t.Errorf("base has %s, want %s", c[0].Base, tt.base)
			}
		})
	}
}
