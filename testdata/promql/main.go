// Command promql tells what Prometheus' own parser finds in queries: the test of
// deploy's alerts and dashboard asks it. It reads a JSON list of queries from the standard
// input and writes a JSON list of what is in each. It is a module of its own, so that
// what the parser needs is not needed by crmirror.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// found is what is in one query.
type found struct {
	Error   string              `json:"error,omitempty"` // why it does not parse
	Metrics map[string][]string `json:"metrics"`         // each with the labels that it is selected by
	Groups  []string            `json:"groups"`          // labels in by, without, on, ignoring
}

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "promql:", err)
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer) error {
	var queries []string
	if err := json.NewDecoder(in).Decode(&queries); err != nil {
		return fmt.Errorf("read queries: %w", err)
	}
	p := parser.NewParser(parser.Options{})
	all := make([]found, 0, len(queries))
	for _, query := range queries {
		all = append(all, look(p, query))
	}
	return json.NewEncoder(out).Encode(all)
}

// look parses a query.
func look(p parser.Parser, query string) found {
	f := found{Metrics: map[string][]string{}}
	expr, err := p.ParseExpr(query)
	if err != nil {
		f.Error = err.Error()
		return f
	}
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		switch n := node.(type) {
		case *parser.VectorSelector:
			f.selects(n)
		case *parser.AggregateExpr:
			f.Groups = append(f.Groups, n.Grouping...)
		case *parser.BinaryExpr:
			if n.VectorMatching != nil {
				f.Groups = append(f.Groups, n.VectorMatching.MatchingLabels...)
			}
		}
		return nil
	})
	return f
}

func (f *found) selects(n *parser.VectorSelector) {
	name := n.Name
	by := f.Metrics[name]
	for _, m := range n.LabelMatchers {
		if m.Name != labels.MetricName && !slices.Contains(by, m.Name) {
			by = append(by, m.Name)
		}
	}
	f.Metrics[name] = by
}
