package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/sideband"

	"github.com/crmirror/crmirror/gitstore/object"
)

// Command moves one ref at the remote from what it was last known to be; a
// zero Old creates, a zero New deletes. With Old and New equal it moves nothing,
// and lets the push succeed only if the ref is there still, unmoved.
type Command struct {
	Ref      string
	Old, New object.Hash
}

// PushRequest is one push: refs and the objects they need.
type PushRequest struct {
	Commands []Command
	Atomic   bool // all refs or none, where the server can
	// MustBeAtomic refuses, with ErrNotAtomic, a server that cannot.
	MustBeAtomic bool
	// Pack writes the pack of new objects; thin says that the server takes
	// deltas against what it has. nil when only refs are deleted.
	Pack func(w io.Writer, thin bool) error
}

// ErrNotAtomic says that the server cannot move several refs together.
var ErrNotAtomic = errors.New("the remote does not support atomic pushes")

// errSilent stands for a push of whose refs the server did not tell what became.
var errSilent = errors.New("the server does not say whether it moved the ref")

// Push connects and pushes in one session. Over http it asks for the refs first,
// a request of its own, only once: later pushes rely on the server's comparing of
// old values, and ask when one of them comes to nothing.
//
// Invariant: every command carries the expected old value, and the server
// refuses one that is stale: nothing of another writer is ever overwritten.
// Test: TestPushDiverged.
//
// Invariant: nil means that the server said "ok" to every command or lists
// every ref as it is to be. Test: TestPushUnreported.
func (r *Remote) Push(ctx context.Context, req PushRequest) error {
	if done, err := r.pushAgain(ctx, req); done {
		return err
	}
	silent, err := r.push(ctx, req)
	if err != nil || !silent {
		return err
	}
	// A second session sees what became of the first.
	s, err := r.open(ctx, receivePack)
	if err != nil {
		return err
	}
	defer s.idle.end()
	rest, err := s.pending(req.Commands)
	if err == nil && len(rest) > 0 {
		err = &RefusedError{Ref: rest[0].Ref, Reason: "it took the push without a word and left the ref where it was"}
	}
	return r.explain(s.ctx, s.link, errors.Join(err, s.link.close()))
}

func (r *Remote) push(ctx context.Context, req PushRequest) (silent bool, err error) {
	s, err := r.open(ctx, receivePack)
	if err != nil {
		return false, err
	}
	defer s.idle.end()
	err = s.push(req)
	if err == nil {
		r.remember(s)
	}
	if errors.Is(err, errSilent) {
		silent, err = true, nil
	}
	closeErr := s.link.close()
	if err == nil {
		err = closeErr
	}
	return silent, r.explain(s.ctx, s.link, err)
}

func (s *Session) push(req PushRequest) error {
	commands, err := s.pending(req.Commands)
	if err != nil || len(commands) == 0 {
		return err
	}
	if req.MustBeAtomic && !s.Refs.Can(capability.Atomic) {
		return ErrNotAtomic
	}
	up := packp.NewReferenceUpdateRequest()
	for _, c := range []capability.Capability{capability.ReportStatus, capability.Sideband64k, capability.Quiet} {
		if s.Refs.Can(c) {
			_ = up.Capabilities.Set(c)
		}
	}
	if req.Atomic && s.Refs.Can(capability.Atomic) {
		_ = up.Capabilities.Set(capability.Atomic)
	}
	sends := false
	for _, c := range commands {
		up.Commands = append(up.Commands, &packp.Command{Name: plumbing.ReferenceName(c.Ref), Old: c.Old, New: c.New})
		sends = sends || !c.New.IsZero()
	}
	out, err := s.exchange(func(w io.Writer) error {
		if err := up.Encode(w); err != nil {
			return err
		}
		if !sends || req.Pack == nil {
			return nil
		}
		return req.Pack(w, !s.Refs.Can("no-thin"))
	})
	if err != nil {
		return err
	}
	return s.report(out, up.Capabilities, commands)
}

// pending drops the commands that are done already (an earlier push whose
// answer got lost) and finds those that are stale before anything is sent.
func (s *Session) pending(commands []Command) ([]Command, error) {
	var rest []Command
	moves := false
	for _, c := range commands {
		switch now := s.Refs.Hashes[c.Ref]; {
		case c.Old == c.New && now == c.Old:
			rest = append(rest, c)
		case now == c.New:
		case now == c.Old:
			moves = true
			if err := s.room(c); err != nil {
				return nil, err
			}
			rest = append(rest, c)
		default:
			return nil, fmt.Errorf("%w: %s is at %s, expected %s", ErrDiverged, c.Ref, shown(now), shown(c.Old))
		}
	}
	if !moves {
		return nil, nil
	}
	return rest, nil
}

// room refuses to create a ref below or above one that the server has: refs are
// files and folders to git, so it never works, however often it is tried.
func (s *Session) room(c Command) error {
	if !c.Old.IsZero() || c.New.IsZero() {
		return nil
	}
	for there := range s.Refs.Hashes {
		if strings.HasPrefix(there, c.Ref+"/") || strings.HasPrefix(c.Ref, there+"/") {
			return &RefusedError{Ref: c.Ref, Reason: there + " exists there, and git keeps no ref below another; choose another name, or remove that one"}
		}
	}
	return nil
}

func shown(h object.Hash) string {
	if h.IsZero() {
		return "nothing"
	}
	return h.String()[:10]
}

// report reads the server's verdict on each ref.
func (s *Session) report(out io.Reader, caps *capability.List, commands []Command) error {
	if !caps.Supports(capability.ReportStatus) {
		if _, err := io.Copy(io.Discard, out); err != nil {
			return err
		}
		return errSilent
	}
	var progress bytes.Buffer
	if caps.Supports(capability.Sideband64k) {
		demux := sideband.NewDemuxer(sideband.Sideband64k, out)
		demux.Progress = &progress
		out = demux
	}
	status := packp.NewReportStatus()
	err := status.Decode(out)
	words := strings.TrimSpace(progress.String())
	if w := s.link.words(); w != "" {
		words = strings.TrimSpace(words + "\n" + w)
	}
	if err != nil {
		return fmt.Errorf("read push report: %w", withWords(err, words))
	}
	if status.UnpackStatus != "ok" {
		return &RefusedError{Ref: commands[0].Ref, Reason: "unpack: " + status.UnpackStatus, Words: words}
	}
	for _, c := range status.CommandStatuses {
		if c.Status == "ok" || c.Status == "atomic push failure" || c.Status == "atomic transaction failed" {
			continue // of an atomic push, the ref that is at fault says more
		}
		return verdict(string(c.ReferenceName), c.Status, words)
	}
	if err := status.Error(); err != nil {
		// All that failed is the transaction; only the words say why.
		if movedWords(words) && !noRoomWords(words) {
			return fmt.Errorf("%w: %s", ErrDiverged, words)
		}
		return &RefusedError{Ref: commands[0].Ref, Reason: err.Error(), Words: words}
	}
	return allTold(status, commands)
}

// allTold looks for a ref that a report without any failure leaves out.
func allTold(status *packp.ReportStatus, commands []Command) error {
	told := map[string]bool{}
	for _, c := range status.CommandStatuses {
		told[string(c.ReferenceName)] = true
	}
	for _, c := range commands {
		if !told[c.Ref] {
			return errSilent
		}
	}
	return nil
}

func withWords(err error, words string) error {
	if words == "" {
		return err
	}
	return fmt.Errorf("%w (%s)", err, words)
}

// verdict tells a ref that moved from one that the server does not want moved.
// Servers have words for it, no codes: git's receive-pack "failed to update
// ref" and "fetch first", JGit's "lock error", "non-fast-forward".
func verdict(ref, status, words string) error {
	if movedWords(status) && !noRoomWords(words) {
		return fmt.Errorf("%w: %s: %s", ErrDiverged, ref, status)
	}
	return &RefusedError{Ref: ref, Reason: status, Words: words}
}

// noRoomWords recognizes how git says that another ref's name is in the way,
// one that it does not list: its status is that of a ref that moved.
func noRoomWords(s string) bool { return strings.Contains(s, "exists; cannot create") }

func movedWords(s string) bool {
	for _, w := range []string{
		"failed to update ref", "fetch first", "non-fast-forward", "stale info", "but expected", "already exists", "failed to lock",
		"cannot lock ref", "incorrect old value", "lock error",
	} {
		if strings.Contains(s, w) {
			return true
		}
	}
	return false
}
