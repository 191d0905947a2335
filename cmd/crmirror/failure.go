package main

import (
	"context"
	"errors"
	"io"

	"github.com/spf13/cobra"
)

// failure is the report as JSON of a command that ended before it had one, so that whoever reads reports is not left
// with nothing, which passes for a success in a pipe. Its form is a contract: the fields are those of the
// command's report, or missing in it.
type failure struct {
	Complete    *bool  `json:"complete,omitempty"` // of restore: false
	Same        *bool  `json:"same,omitempty"`     // of verify: false
	Interrupted bool   `json:"interrupted,omitempty"`
	Error       string `json:"error"`
}

func newFailure(ctx context.Context, command string, err error) failure {
	f := failure{Error: err.Error(), Interrupted: ctx.Err() != nil && errors.Is(err, context.Canceled)}
	no := false
	switch command {
	case "restore":
		f.Complete = &no
	case "verify":
		f.Same = &no
	}
	return f
}

// wantsJSON tells whether a command was asked to report as JSON.
func wantsJSON(cmd *cobra.Command) bool {
	output := cmd.Flags().Lookup("output")
	return output != nil && output.Value.String() == string(outputJSON)
}

// watched notes whether something was written.
type watched struct {
	io.Writer
	wrote bool
}

func (w *watched) Write(p []byte) (int, error) {
	w.wrote = true
	return w.Writer.Write(p)
}
