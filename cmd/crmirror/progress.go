package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/cheggaaa/pb/v3"
	"golang.org/x/term"

	"github.com/crmirror/crmirror/sync/restore"
)

// progressBar shows how far a restore is: on a terminal a bar for each stage, elsewhere a line at its end, and now
// and then one of a long stage.
type progressBar struct {
	w     io.Writer
	isTTY bool
	stage restore.Stage
	bar   *pb.ProgressBar // of the stage, on a terminal
	told  time.Time       // when the last line was written
	ended bool            // the stage's last line was
}

func newProgressBar(w io.Writer) *progressBar {
	return &progressBar{w: w, isTTY: isTerminal(w)}
}

// lineEvery is how often a long stage is told of where there is no terminal.
const lineEvery = 10 * time.Second

// barTemplate is a bar: what is done of how many, the rate and the time left; in the end, the time that it took.
const barTemplate pb.ProgressBarTemplate = `{{string . "stage"}} {{counters .}} {{bar .}} {{speed . "%s/s" "-/s"}} {{rtime . "%s left" "in %s" ""}}`

// columns is how wide a bar may be. Some terminals, as those of containers, do not know their size and say zero.
func columns(w io.Writer) int {
	const widest, usual = 100, 80
	if f, ok := w.(*os.File); ok {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
			return min(width, widest)
		}
	}
	return usual
}

// show takes note of a step. It is called from one goroutine.
func (b *progressBar) show(p restore.Progress) {
	if p.Stage != b.stage {
		b.finish()
		b.stage, b.told, b.ended = p.Stage, time.Now(), false
		if b.isTTY {
			b.bar = barTemplate.New(p.Total)
			b.bar.Set("stage", string(p.Stage)).SetWriter(b.w).SetWidth(columns(b.w)).Start()
		}
	}
	switch {
	case b.bar != nil:
		b.bar.SetCurrent(int64(p.Done))
	case b.isTTY:
	case p.Done == p.Total && !b.ended, time.Since(b.told) > lineEvery:
		b.told, b.ended = time.Now(), p.Done == p.Total
		rate := float64(p.Done) / max(time.Since(p.Began).Seconds(), 0.001)
		fmt.Fprintf(b.w, "%s: %d of %d, %.0f/s\n", p.Stage, p.Done, p.Total, rate)
	}
}

// finish ends the bar that is drawn.
func (b *progressBar) finish() {
	if b.bar != nil {
		b.bar.Finish()
		b.bar = nil
	}
}
