//go:build long

package soak

import (
	"encoding/csv"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// sample is what was seen of the agent at one time.
type sample struct {
	seconds  float64 // since the first one
	resident float64 // memory in MB
	packs    float64
	files    float64 // in the clone, without its worktree
	backlog  float64 // updates that the remote does not show yet
	commits  float64 // at the remote
}

// series is one line of a chart.
type series struct {
	name  string
	value func(sample) float64
}

func allSeries() []series {
	return []series{
		{"resident memory, MB", func(s sample) float64 { return s.resident }},
		{"packs in the clone", func(s sample) float64 { return s.packs }},
		{"files in the clone", func(s sample) float64 { return s.files }},
		{"backlog, updates", func(s sample) float64 { return s.backlog }},
		{"commits pushed", func(s sample) float64 { return s.commits }},
	}
}

// writeCSV writes all samples, one a line.
func writeCSV(t *testing.T, file string, samples []sample) {
	t.Helper()
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	w := csv.NewWriter(f)
	header := []string{"seconds"}
	for _, s := range allSeries() {
		header = append(header, s.name)
	}
	err = w.Write(header)
	for _, at := range samples {
		line := []string{strconv.FormatFloat(at.seconds, 'f', 1, 64)}
		for _, s := range allSeries() {
			line = append(line, strconv.FormatFloat(s.value(at), 'f', -1, 64))
		}
		if err == nil {
			err = w.Write(line)
		}
	}
	w.Flush()
	for _, err := range []error{err, w.Error(), f.Close()} {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// writeSVG draws one small chart above the other, all over the same time.
func writeSVG(t *testing.T, file string, samples []sample) {
	t.Helper()
	if err := os.WriteFile(file, []byte(svg(samples)), 0o666); err != nil {
		t.Fatal(err)
	}
}

const (
	chartWidth, chartHeight = 800.0, 110.0
	chartLeft, chartTop     = 70.0, 34.0
	chartStep               = chartHeight + 50
)

func svg(samples []sample) string {
	var b strings.Builder
	list := allSeries()
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" font-family="sans-serif" font-size="12">`+"\n",
		chartLeft+chartWidth+30, chartTop+chartStep*float64(len(list)))
	b.WriteString(`<rect width="100%" height="100%" fill="white"/>` + "\n")
	end := 1.0
	if len(samples) > 0 {
		end = max(end, samples[len(samples)-1].seconds)
	}
	for i, s := range list {
		top := chartTop + chartStep*float64(i)
		highest := 1.0
		for _, at := range samples {
			highest = max(highest, s.value(at))
		}
		var points []string
		for _, at := range samples {
			points = append(points, fmt.Sprintf("%.1f,%.1f", chartLeft+chartWidth*at.seconds/end, top+chartHeight*(1-s.value(at)/highest)))
		}
		fmt.Fprintf(&b, `<text x="%.0f" y="%.0f">%s</text>`+"\n", chartLeft, top-8, s.name)
		fmt.Fprintf(&b, `<path d="M%.0f %.0fv%.0fh%.0f" fill="none" stroke="gray"/>`+"\n", chartLeft, top, chartHeight, chartWidth)
		fmt.Fprintf(&b, `<text x="%.0f" y="%.0f" text-anchor="end">%.4g</text>`+"\n", chartLeft-6, top+10, highest)
		fmt.Fprintf(&b, `<text x="%.0f" y="%.0f" text-anchor="end">0</text>`+"\n", chartLeft-6, top+chartHeight)
		fmt.Fprintf(&b, `<text x="%.0f" y="%.0f" text-anchor="end">%.1f min</text>`+"\n", chartLeft+chartWidth, top+chartHeight+15, end/60)
		fmt.Fprintf(&b, `<polyline points="%s" fill="none" stroke="steelblue" stroke-width="1.5"/>`+"\n", strings.Join(points, " "))
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// limit is how much a series may be higher in the last fifth of a run than in
// the second: a part of it, and so much besides.
type limit struct {
	series
	part, more float64
}

// grown says what grew. The medians of two fifths are compared: the first fifth
// is the start, which fills caches and the heap; a median is not moved by a merge
// or a collection that falls on a sample; and fifths have enough samples in a run
// of three minutes as in one of sixty. A slope would be moved by where in its
// up and down the run happens to end.
//
// What is allowed is what steady work sways by: of memory a part, for the
// collector lets the heap grow with it, and some MB, for names of objects of
// history are kept (150 bytes a commit); of packs and files what comes between
// two merges; of the backlog some seconds' worth.
func grown(samples []sample) []string {
	list := allSeries()
	limits := []limit{{list[0], 0.15, 10}, {list[1], 0.5, 15}, {list[2], 0.5, 40}, {list[3], 1, 100}}
	fifth := len(samples) / 5
	if fifth == 0 {
		return []string{fmt.Sprintf("only %d samples: too few to tell", len(samples))}
	}
	before, after := samples[fifth:2*fifth], samples[len(samples)-fifth:]
	var out []string
	for _, l := range limits {
		was, is := medianOf(before, l.value), medianOf(after, l.value)
		if is > was*(1+l.part)+l.more {
			out = append(out, fmt.Sprintf("%s grew from %.4g in the second fifth of the run to %.4g in the last", l.name, was, is))
		}
	}
	if commits := list[4].value; commits(after[len(after)-1]) <= commits(before[0]) {
		out = append(out, "nothing was pushed")
	}
	return out
}

func medianOf(samples []sample, value func(sample) float64) float64 {
	var values []float64
	for _, s := range samples {
		values = append(values, value(s))
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// TestGrown: steady work that sways is no growth, a leak of each kind is.
func TestGrown(t *testing.T) {
	run := func(change func(i int, s *sample)) []sample {
		samples := make([]sample, 100)
		for i := range samples {
			sway := float64(i * 7 % 12)
			samples[i] = sample{seconds: float64(i), resident: 60 + sway, packs: 5 + sway, files: 30 + 2*sway, backlog: 10 * sway, commits: float64(i)}
			if i < 10 {
				samples[i].resident = 40
			}
			change(i, &samples[i])
		}
		return samples
	}
	for _, test := range []struct {
		name   string
		change func(i int, s *sample)
		want   string
	}{
		{"steady", func(int, *sample) {}, ""},
		{"memory", func(i int, s *sample) { s.resident += float64(i) / 2 }, "resident memory, MB grew"},
		{"packs", func(i int, s *sample) { s.packs += float64(i) / 2 }, "packs in the clone grew"},
		{"files", func(i int, s *sample) { s.files += 2 * float64(i) }, "files in the clone grew"},
		{"backlog", func(i int, s *sample) { s.backlog += 10 * float64(i) }, "backlog, updates grew"},
		{"standstill", func(_ int, s *sample) { s.commits = 7 }, "nothing was pushed"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := strings.Join(grown(run(test.change)), "; ")
			if !strings.HasPrefix(got, test.want) || (got == "") != (test.want == "") {
				t.Errorf("grown: got %q, want %q", got, test.want)
			}
		})
	}
	if got := grown(run(func(int, *sample) {})[:4]); len(got) != 1 {
		t.Errorf("four samples: got %v, want that they are too few", got)
	}
}
