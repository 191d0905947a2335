package sync

import (
	"context"
	"slices"

	"github.com/crmirror/crmirror/kube"
)

// readTold reads live what informers told, wherever base is to move by it: the objects to
// be judged that seem to be as git has them, and those that the mirror is about to write.
// Those that are judged are read by that.
//
// An informer may lag behind what another agent wrote, or this one before it was
// started again: a listing comes from the API server's cache. What it remembers is older than base
// then, and would undo in git what a person had changed there. What it may be
// trusted in without a read:
//
//   - that an object is as git and base have it: nothing moves by that;
//   - the first commit of all: without files and without base there is nothing to be undone;
//   - CRDs and Namespaces that no rule names: none of our writes can be in them, and the state
//     that was missed is told later and mirrored then;
//   - that an object is gone: it is read before its file goes (confirm).
//
// Invariant: base moves only by what was read live since the remote was asked.
// Tests: TestLateInformer, TestJudgesLiveReads.
func (m *Mirror) readTold(ctx context.Context, judged map[kube.Key]struct{}) error {
	var keys []kube.Key
	nothingAgreed := m.repo.Ref(m.refs.Base).IsZero()
	for _, key := range sortedKeys(m.pending) {
		var move bool
		if _, ok := judged[key]; ok {
			_, equal, err := m.equalToGit(ctx, key)
			if err != nil {
				return err
			}
			move = equal
		} else {
			e := m.pending[key]
			blob, exists := m.repo.Lookup(PathOf(key))
			move = e.Op == Present && !nothingAgreed && !m.goesAlong(key) && (!exists || blob != digestOf(e))
		}
		if move {
			keys = append(keys, key)
		}
	}
	for portion := range slices.Chunk(keys, livePortion) {
		states, errs := m.readLive(ctx, portion)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		for i, key := range portion {
			delete(m.pending, key)
			m.readOne(key, states[i], errs[i])
		}
		if len(portion) == livePortion {
			if err := m.spill(); err != nil {
				return err
			}
		}
	}
	return nil
}
