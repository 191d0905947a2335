package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/crmirror/crmirror/gitstore/gittest"
	"github.com/crmirror/crmirror/kube/kubetest"
)

// Row is one line of the table. Where nothing is compared, Reference is the bound
// itself and Bar is 1; Bar is 0 where nothing has to be reached.
type Row struct {
	Name      string  `json:"name"`
	Ours      float64 `json:"ours"`
	Reference float64 `json:"reference"`
	Ratio     float64 `json:"ratio"`
	Unit      string  `json:"unit"`
	Bar       float64 `json:"bar"`
	Runs      int     `json:"runs"`
}

// bench is one run of the benchmarks.
type bench struct {
	quick bool
	runs  int
	dir   string
	rows  []Row

	shared   *kubetest.Cluster // see cluster
	origins  *origins          // see remotes
	cleanups []func() error
	made     int
}

// size picks a size for a full and for a quick run.
func (b *bench) size(full, quick int) int {
	if b.quick {
		return quick
	}
	return full
}

// folder makes a new folder for one measurement. It stays until the end: a file
// system is slow for a while after many deletes.
func (b *bench) folder(name string) (string, error) {
	b.made++
	dir := filepath.Join(b.dir, fmt.Sprintf("%03d-%s", b.made, name))
	return dir, os.MkdirAll(dir, 0o777)
}

// cleanup runs f when everything was measured; the last one first.
func (b *bench) cleanup(f func() error) { b.cleanups = append(b.cleanups, f) }

func (b *bench) close() error {
	var err error
	for _, f := range slices.Backward(b.cleanups) {
		err = errors.Join(err, f())
	}
	return errors.Join(err, os.RemoveAll(b.dir))
}

// add adds a row of medians. ours and reference are the measurements; bar is the
// highest ratio that will do, 0 for none.
func (b *bench) add(name, unit string, bar float64, ours, reference []float64) {
	row := Row{Name: name, Ours: median(ours), Reference: median(reference), Unit: unit, Bar: bar, Runs: len(ours)}
	if row.Reference != 0 {
		row.Ratio = row.Ours / row.Reference
	}
	b.rows = append(b.rows, row)
	fmt.Println(row.String())
}

// report adds a row for figures that have a bound of their own.
func (b *bench) report(name, unit string, bound float64, ours ...float64) {
	bar := 1.0
	if bound == 0 {
		bar = 0
	}
	b.add(name, unit, bar, ours, []float64{bound})
}

// compare measures both in turns, b.runs times; each returns what it measured.
func (b *bench) compare(ours, reference func() (float64, error)) (o, r []float64, err error) {
	for range b.runs {
		for _, side := range []struct {
			measure func() (float64, error)
			to      *[]float64
		}{{reference, &r}, {ours, &o}} {
			runtime.GC()
			v, err := side.measure()
			if err != nil {
				return nil, nil, err
			}
			*side.to = append(*side.to, v)
		}
	}
	return o, r, nil
}

func (b *bench) runAll(ctx context.Context, match *regexp.Regexp) error {
	var errs error
	for _, s := range scenarios() {
		if ctx.Err() != nil {
			return errors.Join(errs, ctx.Err())
		}
		if !match.MatchString(s.name) {
			continue
		}
		begin := time.Now()
		fmt.Printf("-- %s\n", s.name)
		if err := s.run(ctx, b); err != nil {
			errs = errors.Join(errs, fmt.Errorf("%s: %w", s.name, err))
			fmt.Println("   failed:", err)
		}
		fmt.Printf("   (%.0f s)\n", time.Since(begin).Seconds())
	}
	return errs
}

func (r Row) String() string {
	if r.Bar == 0 && r.Reference == 0 {
		return fmt.Sprintf("%s | %s | | | | %d", r.Name, amount(r.Ours, r.Unit), r.Runs)
	}
	if r.Bar == 0 {
		return fmt.Sprintf("%s | %s | %s | %.3g | | %d", r.Name, amount(r.Ours, r.Unit), amount(r.Reference, r.Unit), r.Ratio, r.Runs)
	}
	verdict := "met"
	if r.Ratio > r.Bar {
		verdict = "missed"
	}
	return fmt.Sprintf("%s | %s | %s | %.3g | ≤ %.3g %s | %d", r.Name, amount(r.Ours, r.Unit), amount(r.Reference, r.Unit), r.Ratio, r.Bar, verdict, r.Runs)
}

func amount(v float64, unit string) string {
	if v == 0 {
		return "0 " + unit
	}
	return fmt.Sprintf("%.3g %s", v, unit)
}

// print writes all rows as a Markdown table.
func (b *bench) print(w io.Writer) {
	fmt.Fprintln(w, "\n| what | ours | reference | ratio | bar | runs |\n| --- | --- | --- | --- | --- | --- |")
	for _, r := range b.rows {
		fmt.Fprintf(w, "| %s |\n", r)
	}
}

// write writes the rows to a file, as JSON.
func (b *bench) write(file string) error {
	content, err := json.MarshalIndent(b.rows, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
		return err
	}
	return os.WriteFile(file, append(content, '\n'), 0o666)
}

// median of at least one value.
func median(values []float64) float64 {
	return quantile(values, 0.5)
}

// quantile of at least one value; q is between 0 and 1.
func quantile(values []float64, q float64) float64 {
	sorted := slices.SortedFunc(slices.Values(values), cmp.Compare[float64])
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

func gitVersion(ctx context.Context) string {
	out, err := gittest.Run(ctx, ".", "version")
	if err != nil {
		return "git: " + err.Error()
	}
	return strings.TrimSpace(out)
}
