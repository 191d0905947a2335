package object

import (
	"bytes"
	"iter"

	"github.com/go-git/go-git/v5/plumbing/filemode"
)

// Pair is one name in two trees; a zero entry is nothing.
type Pair struct{ Old, New Entry }

// Compared yields the names whose entries differ between two trees' contents, in
// their order. A file and a folder of the same name are two pairs. A malformed tree ends it
// with an error.
func Compared(old, new []byte) iter.Seq2[Pair, error] {
	return func(yield func(Pair, error) bool) {
		for len(old) > 0 || len(new) > 0 {
			a, b := entryLen(old), entryLen(new)
			if a < 0 || b < 0 {
				yield(Pair{}, errBadTree)
				return
			}
			if bytes.Equal(old[:a], new[:b]) { // most of two versions of a tree are
				old, new = old[a:], new[b:]
				continue
			}
			var p Pair
			var err error
			if p, old, new, err = differing(old, new); !yield(p, err) || err != nil {
				return
			}
		}
	}
}

// differing reads the first entries, which are not the same, or the one that comes first, and
// returns what follows.
func differing(old, new []byte) (p Pair, oldRest, newRest []byte, err error) {
	var a, b Entry
	oldRest, newRest = old, new
	if len(old) > 0 {
		if a, oldRest, err = parseEntry(old); err != nil {
			return p, nil, nil, err
		}
	}
	if len(new) > 0 {
		if b, newRest, err = parseEntry(new); err != nil {
			return p, nil, nil, err
		}
	}
	c := 0
	switch {
	case len(old) == 0:
		c = 1
	case len(new) == 0:
		c = -1
	default:
		c = Compare(a.Name, a.Mode == filemode.Dir, b.Name, b.Mode == filemode.Dir)
	}
	switch {
	case c < 0:
		return Pair{Old: a}, oldRest, new, nil
	case c > 0:
		return Pair{New: b}, old, newRest, nil
	}
	return Pair{Old: a, New: b}, oldRest, newRest, nil
}

// entryLen is how many bytes the first entry of a tree's content has, 0 when there is none, -1
// when it is malformed.
func entryLen(content []byte) int {
	if len(content) == 0 {
		return 0
	}
	end := bytes.IndexByte(content, 0)
	if end < 0 || len(content) < end+1+len(Hash{}) {
		return -1
	}
	return end + 1 + len(Hash{})
}
