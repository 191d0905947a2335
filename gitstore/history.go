package gitstore

import (
	"bytes"
	"container/heap"
	"errors"
	"fmt"
	"maps"
	"strconv"

	"github.com/crmirror/crmirror/gitstore/object"
	"github.com/crmirror/crmirror/gitstore/odb"
)

// walked is a commit in a walk through history.
type walked struct {
	hash    Hash
	time    int64 // of committing, seconds
	parents []Hash
}

// byTime is a heap of commits, the newest on top.
type byTime []walked

func (q byTime) Len() int           { return len(q) }
func (q byTime) Less(i, j int) bool { return q[i].time > q[j].time }
func (q byTime) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *byTime) Push(x any)        { *q = append(*q, x.(walked)) }
func (q *byTime) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}

// visit reads a commit; ok is false for what is not here, beyond where history
// is shallow, and for tags.
func (s *Store) visit(h Hash) (w walked, ok bool, err error) {
	if h.IsZero() || !s.db.Has(h) {
		return w, false, nil
	}
	t, content, err := s.db.Read(h)
	if errors.Is(err, odb.ErrMissing) || err == nil && t != object.Commit {
		return w, false, nil
	}
	if err != nil {
		return w, false, err
	}
	_, parents, err := object.DecodeCommit(content)
	if err != nil {
		return w, false, fmt.Errorf("read commit %s: %w", h, err)
	}
	return walked{hash: h, time: commitTime(content), parents: parents}, true, nil
}

// commitTime is when a commit was made, 0 when it does not say.
func commitTime(content []byte) int64 {
	header, _, _ := bytes.Cut(content, []byte("\n\n"))
	_, line, _ := bytes.Cut(header, []byte("\ncommitter "))
	line, _, _ = bytes.Cut(line, []byte("\n"))
	fields := bytes.Fields(line[bytes.LastIndexByte(line, '>')+1:])
	if len(fields) == 0 {
		return 0
	}
	seconds, err := strconv.ParseInt(string(fields[0]), 10, 64)
	if err != nil {
		return 0
	}
	return seconds
}

// contains tells whether old is tip or one of its ancestors. It walks from the
// tip, newest first, until it meets old.
func (s *Store) contains(tip, old Hash) (bool, error) {
	if tip == old {
		return true, nil
	}
	if !s.db.Has(old) {
		return false, nil
	}
	seen := map[Hash]bool{tip: true}
	queue := &byTime{}
	add := func(h Hash) error {
		w, ok, err := s.visit(h)
		if ok {
			heap.Push(queue, w)
		}
		return err
	}
	if err := add(tip); err != nil {
		return false, err
	}
	for queue.Len() > 0 {
		for _, p := range heap.Pop(queue).(walked).parents {
			if p == old {
				return true, nil
			}
			if seen[p] {
				continue
			}
			seen[p] = true
			if err := add(p); err != nil {
				return false, err
			}
		}
	}
	return false, nil
}

// lacking returns the commits that can be reached from tips and not from what
// the remote has, each after its parents. It walks both sides, newest first, until all
// that is left to visit is the remote's. Clocks that went wrong make it return
// a commit too many, never one too few.
func (s *Store) lacking(tips, theirs []Hash) ([]Hash, error) {
	has := map[Hash]bool{}     // what was met: true when the remote has it
	pending := map[Hash]bool{} // in the queue and, as far as is known, lacking
	queue := &byTime{}
	add := func(h Hash, there bool) error {
		was, met := has[h]
		if met && (was || !there) {
			return nil
		}
		w, ok, err := s.visit(h)
		if err != nil || !ok {
			return err
		}
		has[h] = there
		delete(pending, h)
		if !there {
			pending[h] = true
		}
		// One that was met as lacking is walked again, to tell its ancestors.
		heap.Push(queue, w)
		return nil
	}
	for _, h := range theirs {
		if err := add(h, true); err != nil {
			return nil, err
		}
	}
	for _, h := range tips {
		if err := add(h, false); err != nil {
			return nil, err
		}
	}
	met := map[Hash][]Hash{} // parents of what seemed lacking when it was met
	for len(pending) > 0 {
		w := heap.Pop(queue).(walked)
		there := has[w.hash]
		if !there {
			delete(pending, w.hash)
			met[w.hash] = w.parents
		}
		for _, p := range w.parents {
			if err := add(p, there); err != nil {
				return nil, err
			}
		}
	}
	maps.DeleteFunc(met, func(h Hash, _ []Hash) bool { return has[h] })
	return odb.ParentsFirst(tips, met), nil
}
