package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

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
	ctx  context.Context //nolint:containedctx // of the one Fetch that it serves; ends when the server is silent for too long
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
	// Before is called with the result before a byte of the pack is read; nil
	// for not at all. Its error ends the fetch.
	Before func(FetchResult) error
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
	result, err := s.fetch(up, mustShare, req.Before, receive)
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

func (s *Session) fetch(
	up *packp.UploadPackRequest, mustShare bool, before func(FetchResult) error, receive func(io.Reader) error,
) (result FetchResult, err error) {
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
	if before != nil {
		if err := before(result); err != nil {
			s.link.abandon()
			return result, &localError{err}
		}
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
