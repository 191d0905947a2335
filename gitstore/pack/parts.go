package pack

import "bytes"

// DiffParts returns a delta from base to target that copies every part of the
// target that the base has too, wherever it lies there. next tells how long the
// first part of a content is: a line of a text, an entry of a tree. ok is false
// when the delta would save less than half.
func DiffParts(base, target []byte, next func([]byte) int) (delta []byte, ok bool) {
	same := 0 // in parts, from the start
	for same < min(len(base), len(target)) {
		n := next(target[same:])
		if same+n > len(base) || !bytes.Equal(base[same:same+n], target[same:same+n]) {
			break
		}
		same += n
	}
	tail := 0
	for tail < min(len(base), len(target))-same && base[len(base)-1-tail] == target[len(target)-1-tail] {
		tail++
	}
	var d Delta
	d.Copy(0, int64(same))
	end := len(target) - tail
	at := same
	if end-at > maxLoose { // else what differs is less than what the base's parts would cost to index
		at = d.copyParts(base, target, at, end, next)
	}
	if at < end {
		d.Insert(target[at:end])
		at = end
	}
	d.Copy(int64(len(base)-len(target)+at), int64(len(target)-at))
	delta = d.Bytes(int64(len(base)))
	return delta, 2*len(delta) < len(target)
}

// maxLoose is how many differing bytes in a row are not looked at in parts.
const maxLoose = 96

// copyParts adds the target's parts from at on, until end, as copies where the
// base has them. It returns where it stopped, which may be beyond end.
func (d *Delta) copyParts(base, target []byte, at, end int, next func([]byte) int) int {
	places := map[string]int{}
	for from := at; from < len(base); {
		n := next(base[from:])
		if part := string(base[from : from+n]); n >= minPart {
			if _, ok := places[part]; !ok {
				places[part] = from
			}
		}
		from += n
	}
	expect, loose := at, at // where the base goes on, and from where on nothing was added yet
	for at < end {
		n := next(target[at:])
		part := target[at : at+n]
		place, ok := expect, expect+n <= len(base) && bytes.Equal(base[expect:expect+n], part)
		if !ok && n >= minPart {
			place, ok = places[string(part)]
		}
		if ok {
			if loose < at {
				d.Insert(target[loose:at])
			}
			d.Copy(int64(place), int64(n))
			expect, loose = place+n, at+n
		}
		at += n
	}
	if loose < at {
		d.Insert(target[loose:at])
	}
	return at
}

// minPart is the shortest part worth a copy instruction of its own, bytes.
const minPart = 8

// NextLine is for DiffParts of texts: how long the first line is.
func NextLine(b []byte) int {
	if i := bytes.IndexByte(b, '\n'); i >= 0 {
		return i + 1
	}
	return len(b)
}

// NextEntry is for DiffParts of trees: how long the first entry is.
func NextEntry(b []byte) int {
	const hash = 20
	if i := bytes.IndexByte(b, 0); i >= 0 && i+1+hash <= len(b) {
		return i + 1 + hash
	}
	return len(b)
}
