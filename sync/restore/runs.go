package restore

import (
	"bufio"
	_ "embed" // runs.txt
	"fmt"
	"io"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

//go:embed runs.txt
var runsText string

// RunsText is the list of DefaultRuns with its comments, to begin an own list with.
func RunsText() string { return runsText }

// DefaultRuns are the resources that run when created, as "plural.group".
func DefaultRuns() []string {
	runs, err := ReadRuns(strings.NewReader(runsText))
	if err != nil {
		panic("restore: runs.txt: " + err.Error()) // TestDefaultRuns reads it
	}
	return runs
}

// ReadRuns reads a list of resources that run when created: one a line, plural.group;
// "#" begins a comment. The error names the line.
func ReadRuns(r io.Reader) ([]string, error) {
	runs := []string{} // an empty list is not the default one
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		line, _, _ := strings.Cut(lines.Text(), "#")
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		if strings.ContainsAny(line, "*/ \t") || strings.ToLower(line) != line {
			return nil, fmt.Errorf("line %d: %q is no resource; write one a line, as plural.group", n, line)
		}
		runs = append(runs, line)
	}
	return runs, lines.Err()
}

// running returns the resources that run when created and are not asked for by name.
func (o *Options) running() map[schema.GroupResource]bool {
	list := o.Runs
	if list == nil {
		list = DefaultRuns()
	}
	running := map[schema.GroupResource]bool{}
	for _, name := range list {
		if gr := schema.ParseGroupResource(name); !o.named(gr) {
			running[gr] = true
		}
	}
	return running
}
