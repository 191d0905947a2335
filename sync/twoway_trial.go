package sync

import (
	"context"
	"errors"

	"github.com/crmirror/crmirror/kube/apply"
	"github.com/crmirror/crmirror/kube/threeway"
)

// try tells, in a dry run, what the writes that were decided would do, and what the server says
// to them if it is asked. What moves in between is judged again, as write does it.
func (m *Mirror) try(ctx context.Context, judged []*judgement) error {
	return m.inRounds(ctx, judged, func(judged []*judgement) ([]*judgement, error) {
		return m.tryOnce(ctx, judged), nil
	})
}

// tryOnce returns the judgements whose objects moved, to be judged again.
func (m *Mirror) tryOnce(ctx context.Context, judged []*judgement) []*judgement {
	t := m.two
	var writes, moved []*judgement
	m.refuseHomeless(ctx, judged)
	for _, j := range judged {
		if j.toWrite() && j.refused == nil {
			writes = append(writes, j)
		}
	}
	results, errs := make([]apply.Result, len(writes)), make([]error, len(writes))
	if t.opts.Trial {
		results, errs = t.makeWrites(ctx, writes)
	}
	for i, j := range writes {
		r := results[i]
		switch {
		case errors.As(errs[i], &j.refused):
		case errs[i] != nil:
			j.waits = errs[i].Error()
			if errors.Is(errs[i], apply.ErrMoved) && j.decision.Object != threeway.DeleteObject { // as in write
				moved = append(moved, j)
			}
		default:
			j.done = append(j.done, applied{action: j.decision.Object, fields: j.decision.Set.Union(j.decision.Remove),
				displaced: r.Displaced, returned: r.Returned, altered: r.Altered})
		}
	}
	return moved
}
