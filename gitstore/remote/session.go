package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/pktline"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/sideband"

	"github.com/crmirror/crmirror/gitstore/object"
)

// Refs is what a server advertises.
type Refs struct {
	Hashes map[string]object.Hash // by full name
	Head   string                 // the full name that HEAD points at, "" if unknown
	caps   *capability.List
}

// Can reports whether the server has a capability.
func (r *Refs) Can(c capability.Capability) bool { return r.caps.Supports(c) }

// Session is an open connection for fetching. It serves one Fetch.
type Session struct {
	r    *Remote
	link link
	ctx  context.Context // ends when the server is silent for too long
	idle *idle
	Refs *Refs
}

// Open connects for fetching and lists the refs. An empty repository has none.
func (r *Remote) Open(ctx context.Context) (*Session, error) {
	return r.open(ctx, uploadPack)
}

func (r *Remote) open(ctx context.Context, service string) (*Session, error) {
	ctx, watch := watchIdle(ctx, r.timeout)
	l, err := r.dial(ctx, service, watch)
	if err != nil {
		defer watch.end()
		return nil, r.explain(ctx, nil, err)
	}
	s := &Session{r: r, link: l, ctx: ctx, idle: watch}
	if s.Refs, err = discover(ctx, l, watch); err != nil {
		// Closing first lets the server finish what it has to say.
		closeErr := l.close()
		defer watch.end()
		return nil, r.explain(ctx, l, errors.Join(err, closeErr))
	}
	return s, nil
}

// Close ends the connection.
func (s *Session) Close() error {
	defer s.idle.end()
	return s.link.close()
}

func discover(ctx context.Context, l link, watch *idle) (*Refs, error) {
	in, err := l.discover(ctx)
	if err != nil {
		return nil, err
	}
	adv := packp.NewAdvRefs()
	err = adv.Decode(watch.reader(in))
	var line *pktline.ErrorLine
	switch {
	case errors.As(err, &line):
		return nil, fmt.Errorf("%w: %s", serverSaid(line.Text), strings.TrimSpace(line.Text))
	case errors.Is(err, packp.ErrEmptyAdvRefs):
	case errors.Is(err, packp.ErrEmptyInput):
		return nil, io.ErrUnexpectedEOF
	case err != nil:
		return nil, fmt.Errorf("read refs: the answer is not git's: %w", err)
	}
	refs := &Refs{Hashes: adv.References, caps: adv.Capabilities}
	for _, ref := range adv.Capabilities.Get(capability.SymRef) {
		if target, ok := strings.CutPrefix(ref, "HEAD:"); ok {
			refs.Head = target
		}
	}
	if refs.Head == "" && adv.Head != nil {
		refs.Head = guessHead(adv)
	}
	return refs, nil
}

// guessHead finds the branch HEAD stands on at a server too old to say so.
func guessHead(adv *packp.AdvRefs) string {
	for _, name := range []string{"refs/heads/main", "refs/heads/master"} {
		if adv.References[name] == *adv.Head {
			return name
		}
	}
	for name, h := range adv.References {
		if strings.HasPrefix(name, "refs/heads/") && h == *adv.Head {
			return name
		}
	}
	return ""
}

// serverSaid classifies an error line of the protocol.
func serverSaid(text string) error {
	switch {
	case notFoundWords(text):
		return ErrNotFound
	case authWords(text):
		return ErrAuth
	}
	return ErrRefused
}

// FetchRequest says which objects are wanted.
type FetchRequest struct {
	Wants    []object.Hash
	Haves    []object.Hash // commits that are here completely, down to Shallows
	Shallows []object.Hash // commits here without their parents
	Depth    int           // 0 is all history
	NoBlobs  bool          // leave file contents out; the server must have filter
}

// FetchResult is what came besides the pack.
type FetchResult struct {
	Shallow, Unshallow []object.Hash
	Common             bool // the server knows one of Haves
}

// Fetch asks for objects and hands the pack's stream to receive. When none of
// the Haves is common and mustShare is set, nothing is read, and the result says so.
func (s *Session) Fetch(req FetchRequest, mustShare bool, receive func(io.Reader) error) (FetchResult, error) {
	up := packp.NewUploadPackRequest()
	for _, c := range []capability.Capability{capability.OFSDelta, capability.Sideband64k, capability.NoProgress} {
		if s.Refs.Can(c) {
			_ = up.Capabilities.Set(c) // fails only for a capability that needs an argument
		}
	}
	if s.Refs.Can(capability.Shallow) {
		_ = up.Capabilities.Set(capability.Shallow)
		up.Shallows = req.Shallows
		up.Depth = packp.DepthCommits(req.Depth)
	}
	if req.NoBlobs {
		_ = up.Capabilities.Set(capability.Filter)
		up.Filter = packp.FilterBlobNone()
	}
	up.Wants, up.Haves = req.Wants, req.Haves
	result, err := s.fetch(up, mustShare, receive)
	return result, s.r.explain(s.ctx, s.link, err)
}

// exchange sends a request and returns the answer, both watched for silence.
func (s *Session) exchange(body func(io.Writer) error) (*idleReader, error) {
	out, err := s.link.exchange(s.ctx, func(w io.Writer) error {
		watched := s.idle.writer(w)
		err := body(watched)
		if err != nil && !watched.failed {
			return &localError{err}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return s.idle.reader(out), nil
}

func (s *Session) fetch(up *packp.UploadPackRequest, mustShare bool, receive func(io.Reader) error) (result FetchResult, err error) {
	out, err := s.exchange(func(w io.Writer) error {
		if err := up.UploadRequest.Encode(w); err != nil {
			return err
		}
		if err := up.UploadHaves.Encode(w, false); err != nil {
			return err
		}
		return pktline.NewEncoder(w).EncodeString("done\n")
	})
	if err != nil {
		return result, err
	}
	answer := packp.NewUploadPackResponse(up)
	if err := answer.Decode(io.NopCloser(out)); err != nil {
		return result, fmt.Errorf("read answer: %w", err)
	}
	result = FetchResult{Shallow: answer.Shallows, Unshallow: answer.Unshallows, Common: len(answer.ACKs) > 0}
	if mustShare && !result.Common {
		s.link.abandon()
		return result, nil
	}
	var pack io.Reader = answer
	if up.Capabilities.Supports(capability.Sideband64k) {
		pack = sideband.NewDemuxer(sideband.Sideband64k, answer)
	}
	err = receive(pack)
	if err != nil && !out.failed {
		return result, &localError{err}
	}
	return result, err
}

// Command moves one ref at the remote from what it was last known to be; a
// zero Old creates, a zero New deletes.
type Command struct {
	Ref      string
	Old, New object.Hash
}

// PushRequest is one push: refs and the objects they need.
type PushRequest struct {
	Commands []Command
	Atomic   bool // all refs or none; needs the server's capability
	// Pack writes the pack of new objects; thin says that the server takes
	// deltas against what it has. nil when only refs are deleted.
	Pack func(w io.Writer, thin bool) error
}

// Push connects and pushes in one session.
//
// Invariant: every command carries the expected old value, and the server
// refuses one that is stale: nothing of another writer is ever overwritten.
// Test: TestPushDiverged.
func (r *Remote) Push(ctx context.Context, req PushRequest) error {
	s, err := r.open(ctx, receivePack)
	if err != nil {
		return err
	}
	defer s.idle.end()
	err = s.push(req)
	closeErr := s.link.close()
	if err == nil {
		err = closeErr
	}
	return r.explain(s.ctx, s.link, err)
}

func (s *Session) push(req PushRequest) error {
	commands, err := s.pending(req.Commands)
	if err != nil || len(commands) == 0 {
		return err
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
	for _, c := range commands {
		switch s.Refs.Hashes[c.Ref] {
		case c.New:
		case c.Old:
			rest = append(rest, c)
		default:
			return nil, fmt.Errorf("%w: %s is at %s, expected %s", ErrDiverged, c.Ref, shown(s.Refs.Hashes[c.Ref]), shown(c.Old))
		}
	}
	return rest, nil
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
		_, err := io.Copy(io.Discard, out)
		return err
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
		if movedWords(words) {
			return fmt.Errorf("%w: %s", ErrDiverged, words)
		}
		return &RefusedError{Ref: commands[0].Ref, Reason: err.Error(), Words: words}
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
	if movedWords(status) {
		return fmt.Errorf("%w: %s: %s", ErrDiverged, ref, status)
	}
	return &RefusedError{Ref: ref, Reason: status, Words: words}
}

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
