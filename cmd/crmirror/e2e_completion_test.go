package main_test

import (
	"strings"
	"testing"
)

// TestCompletion asks for each shell's script, and for what the scripts ask for.
func TestCompletion(t *testing.T) {
	t.Parallel()
	u := offline(t)
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if out := u.succeed("completion", shell).stdout; !strings.Contains(out, "crmirror") || !strings.Contains(out, "__complete") {
			t.Errorf("completion %s holds no script:\n%.300s", shell, out)
		}
	}
	if out := u.succeed("__complete", "expl").stdout; !strings.HasPrefix(out, "explain\t") {
		t.Errorf("completing expl: got %q, want explain", out)
	}
	if out := u.succeed("--help").stdout; !strings.Contains(out, "\n  completion ") {
		t.Errorf("the help does not name completion:\n%s", out)
	}
}
