package remote

import (
	"context"
	"errors"
	"net/url"

	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"

	"github.com/crmirror/crmirror/gitstore/object"
)

// receiver is what an http server told when it took a push: all that the next
// push needs to know beforehand.
type receiver struct {
	base *url.URL
	caps *capability.List
}

// remember keeps what the server of a push that succeeded said of itself. Where
// the refs come with the connection, as over ssh, there is nothing to save.
func (r *Remote) remember(s *Session) {
	l, ok := s.link.(*httpLink)
	if !ok || !s.Refs.Can(capability.ReportStatus) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known = &receiver{base: l.base, caps: s.Refs.caps}
}

// recall returns what is remembered of the server, and forgets it: only a push
// that succeeds brings it back. A ref that is created is looked for first, for
// names may be in its way.
func (r *Remote) recall(commands []Command) *receiver {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.known
	r.known = nil
	for _, c := range commands {
		if c.Old.IsZero() {
			return nil
		}
	}
	return known
}

// pushAgain pushes without asking for the refs. done is false when that was not
// possible or did not succeed, for whatever reason on the other side: credentials
// that are not taken any more, a connection that broke, a ref that moved, or an
// earlier push that arrived although its answer got lost. What the refs are tells
// these apart.
//
// Invariant: a push that is tried again carries the same objects and old values,
// so the server takes one of them at most. Test: TestPushAnswerLost.
func (r *Remote) pushAgain(ctx context.Context, req PushRequest) (done bool, err error) {
	known := r.recall(req.Commands)
	if known == nil {
		return false, nil
	}
	ctx, watch := watchIdle(ctx, r.timeout)
	defer watch.end()
	l, err := r.openHTTP(receivePack, watch)
	if err != nil {
		return true, r.explain(ctx, nil, err)
	}
	base := *known.base
	l.base = &base
	refs := &Refs{Hashes: map[string]object.Hash{}, caps: known.caps}
	for _, c := range req.Commands {
		refs.Hashes[c.Ref] = c.Old
	}
	s := &Session{r: r, link: l, ctx: ctx, idle: watch, Refs: refs}
	err = errors.Join(s.push(req), l.close())
	var local *localError
	switch {
	case err == nil:
		r.remember(s)
	case ctx.Err() != nil, errors.As(err, &local): // silence, too, is not met twice
	default:
		return false, nil
	}
	return true, r.explain(ctx, l, err)
}
