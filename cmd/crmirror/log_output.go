package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/crmirror/crmirror/cmd/internal/unified"
	"github.com/crmirror/crmirror/gitstore"
	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/sync"
)

// objectLog is the history of one object. Its JSON form is a contract.
type objectLog struct {
	Object   string       `json:"object"`
	File     string       `json:"file"`
	Versions []logVersion `json:"versions"`
	Last     string       `json:"last,omitempty"`    // the last commit that has it, when it is deleted
	Restore  string       `json:"restore,omitempty"` // the command that restores it from there
}

type logVersion struct {
	Time    string   `json:"time"`
	Commit  string   `json:"commit"`
	Author  string   `json:"author"`
	What    string   `json:"what"` // created, changed, deleted, restored, unselected, re-encoded
	Fields  []string `json:"fields,omitempty"`
	Manager string   `json:"manager,omitempty"`
	Undoes  string   `json:"undoes,omitempty"`
	Diff    string   `json:"diff,omitempty"`

	old, new []byte
}

// deletedLog is what was deleted. Its JSON form is a contract.
type deletedLog struct {
	Deleted []logDeletion `json:"deleted"`
}

type logDeletion struct {
	Time    string `json:"time"`
	Commit  string `json:"commit"`
	Author  string `json:"author"`
	Object  string `json:"object"`
	What    string `json:"what"` // deleted or unselected
	Again   bool   `json:"again,omitempty"`
	Last    string `json:"last"`
	Restore string `json:"restore"`
}

func newObjectLog(key kube.Key, file string, versions []sync.ObjectVersion, req *logRequest) objectLog {
	log := objectLog{Object: sync.Line(key.String()), File: file}
	if newest := versions[0]; newest.New == nil {
		log.Last, log.Restore = newest.Last.String(), restoreCommand(key, newest.Last, req.again)
	}
	for _, v := range versions {
		x := logVersion{
			Time: localTime(v.When), Commit: v.Commit.String(), Author: v.Author, What: v.What,
			Fields: v.Fields, Manager: v.Manager, Undoes: v.Undoes, old: v.Old, new: v.New,
		}
		if req.diff && req.format == outputJSON {
			var b strings.Builder
			_ = unified.Write(&b, file, file, v.Old, v.New, false) // to memory
			x.Diff = b.String()
		}
		log.Versions = append(log.Versions, x)
	}
	return log
}

func localTime(t time.Time) string { return t.Local().Format(time.RFC3339) }

// restoreCommand is what restores one object from a commit.
func restoreCommand(key kube.Key, from gitstore.Hash, again string) string {
	command := fmt.Sprintf("crmirror restore --at %.10s --resources %s", from, key.GroupResource())
	if key.Namespace != "" {
		command += " -n " + key.Namespace
	}
	return command + " --names " + shellWord(key.Name) + again
}

// write writes the versions for people; with diffs, each followed by what changed.
func (l objectLog) write(w io.Writer, diffs, color bool) error {
	if !diffs {
		_, err := io.WriteString(w, l.text())
		return err
	}
	for _, v := range l.Versions {
		if _, err := fmt.Fprintf(w, "%s  %.10s  %s  %s\n", v.Time, v.Commit, v.Author, v.happened()); err != nil {
			return err
		}
		if err := unified.Write(w, l.File, l.File, v.old, v.new, color); err != nil {
			return err
		}
		if _, err := io.WriteString(w, "\n"); err != nil {
			return err
		}
	}
	_, err := io.WriteString(w, l.next())
	return err
}

func (l objectLog) text() string {
	var out strings.Builder
	tw := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	for _, v := range l.Versions {
		fmt.Fprintf(tw, "%s\t%.10s\t%s\t%s\n", v.Time, v.Commit, v.Author, v.happened())
	}
	_ = tw.Flush() // writes to memory
	out.WriteString(l.next())
	return out.String()
}

// next says what to do about an object that is gone.
func (l objectLog) next() string {
	if l.Last == "" {
		return ""
	}
	return clean("\nIt is gone; commit %.10s has it still. To restore it: %s\n", l.Last, l.Restore)
}

// happened says what became of the object, to which fields and by whom.
func (v logVersion) happened() string {
	text := v.What
	if len(v.Fields) > 0 {
		text += " " + strings.Join(v.Fields, ", ")
	}
	if v.Manager != "" {
		text += " (by " + v.Manager + ")"
	}
	if v.Undoes != "" {
		text += "; undoes " + v.Undoes
	}
	return text
}

func newDeletedLog(gone []sync.DeletedObject, req *logRequest) deletedLog {
	log := deletedLog{Deleted: []logDeletion{}}
	for _, d := range gone {
		log.Deleted = append(log.Deleted, logDeletion{
			Time: localTime(d.When), Commit: d.Commit.String(), Author: d.Author, Object: sync.Line(d.Key.String()), What: d.What,
			Again: d.Again, Last: d.Last.String(), Restore: restoreCommand(d.Key, d.Last, req.again),
		})
	}
	return log
}

func (l deletedLog) text() string {
	if len(l.Deleted) == 0 {
		return "Nothing was deleted.\n"
	}
	var out strings.Builder
	for _, d := range l.Deleted {
		out.WriteString(clean("%s  %.10s  %s  %s %s", d.Time, d.Commit, d.Author, d.What, d.Object))
		if d.Again {
			out.WriteString(" (it is there again)\n")
		} else {
			out.WriteString(clean("\n  %s\n", d.Restore))
		}
	}
	return out.String()
}
