// Package object is git's object format: hashes, trees and commits, as bytes
// and as values. It is pure: nothing here touches a disk.
package object

import (
	"bytes"
	"crypto/sha1" // git's object hash; crypto/sha1 is three times faster than sha1cd, and these bytes are ours
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
)

// Hash is an object's name, go-git's type.
type Hash = plumbing.Hash

// Type is an object's type, go-git's type.
type Type = plumbing.ObjectType

// The types of objects and, in packs, of deltas.
const (
	Commit   = plumbing.CommitObject
	Tree     = plumbing.TreeObject
	Blob     = plumbing.BlobObject
	Tag      = plumbing.TagObject
	OfsDelta = plumbing.OFSDeltaObject
	RefDelta = plumbing.REFDeltaObject
)

// EmptyTree is the hash of a tree without entries.
var EmptyTree = Sum(Tree, nil)

// Sum returns the hash of an object of type t with that content.
func Sum(t Type, content []byte) Hash {
	h := sha1.New()
	header := make([]byte, 0, 32)
	header = append(header, t.Bytes()...)
	header = append(header, ' ')
	header = strconv.AppendInt(header, int64(len(content)), 10)
	header = append(header, 0)
	h.Write(header)
	h.Write(content)
	var sum Hash
	h.Sum(sum[:0])
	return sum
}

// Entry is one line of a tree.
type Entry struct {
	Name string
	Mode filemode.FileMode
	Hash Hash
}

// Compare orders two names as git orders the entries of a tree: a folder
// sorts as if its name ended in a slash.
func Compare(a string, aDir bool, b string, bDir bool) int {
	n := min(len(a), len(b))
	if c := strings.Compare(a[:n], b[:n]); c != 0 {
		return c
	}
	return tail(a, n, aDir) - tail(b, n, bDir)
}

// tail is the byte that stands at n: the name's own, or what git takes to
// follow its end.
func tail(name string, n int, dir bool) int {
	switch {
	case n < len(name):
		return int(name[n])
	case dir:
		return '/'
	}
	return 0
}

// AppendEntry appends one entry in git's format to the content of a tree.
func AppendEntry(dst []byte, name string, mode filemode.FileMode, h Hash) []byte {
	if mode == filemode.Regular { // nearly all are
		dst = append(dst, "100644 "...)
	} else {
		dst = append(strconv.AppendUint(dst, uint64(mode), 8), ' ')
	}
	dst = append(dst, name...)
	dst = append(dst, 0)
	return append(dst, h[:]...)
}

// EntryLen is how many bytes AppendEntry appends.
func EntryLen(name string, mode filemode.FileMode) int {
	digits := 6
	if mode == filemode.Dir {
		digits = 5
	}
	return digits + 1 + len(name) + 1 + len(Hash{})
}

// Entries yields the entries of a tree's content in its order. A malformed
// tree ends with a nil-named entry and an error.
func Entries(content []byte) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for len(content) > 0 {
			e, rest, err := parseEntry(content)
			if !yield(e, err) || err != nil {
				return
			}
			content = rest
		}
	}
}

// FindEntry returns the entry of that name, be it a file or a folder, in a tree's
// content; a zero entry when there is none. What sorts after it is not looked at.
func FindEntry(content []byte, name string) (Entry, error) {
	for len(content) > 0 {
		space := bytes.IndexByte(content[:min(len(content), modeLen+1)], ' ')
		if space < 1 {
			return Entry{}, errBadTree
		}
		end := bytes.IndexByte(content[space:], 0)
		if end < 0 || len(content) < space+end+1+len(Hash{}) {
			return Entry{}, errBadTree
		}
		end += space
		here := content[space+1 : end]
		if string(here) == name {
			e, _, err := parseEntry(content)
			return e, err
		}
		// A folder sorts as if its name ended in a slash, so it may come after
		// longer names; none comes after what is greater than that.
		if n := min(len(here), len(name)); string(here[:n]) > name[:n] || len(here) > n && string(here[:n]) == name && here[n] > '/' {
			return Entry{}, nil
		}
		content = content[end+1+len(Hash{}):]
	}
	return Entry{}, nil
}

// modeLen is how many digits a mode has at most.
const modeLen = 6

// CountEntries is how many entries a tree's content has, as far as it is sound.
func CountEntries(content []byte) int {
	n := 0
	for {
		end := bytes.IndexByte(content, 0)
		if end < 0 || len(content) < end+1+len(Hash{}) {
			return n
		}
		content = content[end+1+len(Hash{}):]
		n++
	}
}

var errBadTree = errors.New("malformed tree")

func parseEntry(b []byte) (Entry, []byte, error) {
	space := bytes.IndexByte(b, ' ')
	if space < 1 {
		return Entry{}, nil, errBadTree
	}
	end := bytes.IndexByte(b[space:], 0)
	if end < 0 || len(b) < space+end+1+len(Hash{}) {
		return Entry{}, nil, errBadTree
	}
	end += space
	mode, err := strconv.ParseUint(string(b[:space]), 8, 32)
	if err != nil {
		return Entry{}, nil, errBadTree
	}
	e := Entry{Name: string(b[space+1 : end]), Mode: filemode.FileMode(mode)}
	copy(e.Hash[:], b[end+1:])
	return e, b[end+1+len(e.Hash):], nil
}

// Signature is who wrote a commit, and when.
type Signature struct {
	Name, Email string
	When        time.Time
}

// append writes the signature as a commit holds it. Characters that would
// break the line are left out, as git itself does.
func (s Signature) append(dst []byte) []byte {
	clean := strings.NewReplacer("<", "", ">", "", "\n", " ", "\x00", "")
	_, offset := s.When.Zone()
	sign := '+'
	if offset < 0 {
		sign, offset = '-', -offset
	}
	return fmt.Appendf(dst, "%s <%s> %d %c%02d%02d", strings.TrimSpace(clean.Replace(s.Name)),
		strings.TrimSpace(clean.Replace(s.Email)), s.When.Unix(), sign, offset/3600, offset/60%60)
}

// EncodeCommit returns the content of a commit object. The message gets one
// final line feed.
func EncodeCommit(tree Hash, parents []Hash, by Signature, message string) []byte {
	b := fmt.Appendf(nil, "tree %s\n", tree)
	for _, p := range parents {
		b = fmt.Appendf(b, "parent %s\n", p)
	}
	b = by.append(append(b, "author "...))
	b = by.append(append(b, "\ncommitter "...))
	b = append(b, "\n\n"...)
	message = strings.ReplaceAll(message, "\x00", "")
	return append(b, strings.TrimRight(message, "\n")+"\n"...)
}

// DecodeCommit returns the tree and the parents that a commit's content names.
func DecodeCommit(content []byte) (tree Hash, parents []Hash, err error) {
	for line := range bytes.Lines(content) {
		key, value, _ := bytes.Cut(bytes.TrimSuffix(line, []byte("\n")), []byte(" "))
		switch string(key) {
		case "tree":
			tree = plumbing.NewHash(string(value))
		case "parent":
			parents = append(parents, plumbing.NewHash(string(value)))
		default:
			if tree.IsZero() {
				return tree, nil, errors.New("malformed commit: it names no tree")
			}
			return tree, parents, nil
		}
	}
	return tree, nil, errors.New("malformed commit: it ends in its header")
}

// DecodeTag returns the object that an annotated tag's content names.
func DecodeTag(content []byte) (Hash, error) {
	line, _, _ := bytes.Cut(content, []byte("\n"))
	name, ok := bytes.CutPrefix(line, []byte("object "))
	if !ok || !plumbing.IsHash(string(name)) {
		return Hash{}, errors.New("malformed tag: it names no object")
	}
	return plumbing.NewHash(string(name)), nil
}
