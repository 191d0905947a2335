package unified

import "slices"

// What became of a line.
const (
	kept    = ' '
	removed = '-'
	added   = '+'
)

// line is one line of a difference, with its line feed.
type line struct {
	op   byte
	text string
}

// maxEdits bounds the search for the shortest difference: memory and time grow with its square. What
// lies between the first and the last change is shown as replaced when it needs more.
const maxEdits = 2000

// compare returns the lines of both texts, each with what became of it; removed ones
// come before those added in their place.
func compare(old, new []string) []line {
	head := 0
	for head < len(old) && head < len(new) && old[head] == new[head] {
		head++
	}
	tail := 0
	for tail < len(old)-head && tail < len(new)-head && old[len(old)-1-tail] == new[len(new)-1-tail] {
		tail++
	}
	var lines []line
	add := func(op byte, texts []string) {
		for _, t := range texts {
			lines = append(lines, line{op, t})
		}
	}
	add(kept, old[:head])
	lines = append(lines, middle(old[head:len(old)-tail], new[head:len(new)-tail])...)
	add(kept, old[len(old)-tail:])
	return lines
}

// middle is compare for texts that begin and end differently, by E. W. Myers' "An O(ND) Difference
// Algorithm": after d edits, furthest[k] is how far into old the best path on diagonal k
// (lines of old less lines of new) comes.
func middle(old, new []string) []line {
	a, b := numbered(old, new)
	var rounds [][]int // furthest before each round, from diagonal -d on
	furthest := make([]int, 2*maxEdits+3)
	at := func(k int) *int { return &furthest[k+maxEdits+1] }
	for d := 0; d <= min(len(a)+len(b), maxEdits); d++ {
		rounds = append(rounds, slices.Clone(furthest[maxEdits+1-d-1:maxEdits+1+d+2]))
		for k := -d; k <= d; k += 2 {
			x := *at(k - 1) + 1 // one of old removed
			if k == -d || k != d && *at(k - 1) < *at(k + 1) {
				x = *at(k + 1) // one of new added
			}
			for x < len(a) && x-k < len(b) && a[x] == b[x-k] {
				x++
			}
			*at(k) = x
			if x >= len(a) && x-k >= len(b) {
				return walkBack(old, new, rounds)
			}
		}
	}
	lines := make([]line, 0, len(old)+len(new))
	for _, t := range old {
		lines = append(lines, line{removed, t})
	}
	for _, t := range new {
		lines = append(lines, line{added, t})
	}
	return lines
}

// walkBack follows the rounds from the ends of both texts to their beginnings.
func walkBack(old, new []string, rounds [][]int) []line {
	var lines []line // from the last to the first
	x, y := len(old), len(new)
	for d := len(rounds) - 1; d >= 0; d-- {
		before := func(k int) int { return rounds[d][k+d+1] }
		k := x - y
		isAdded := k == -d || k != d && before(k-1) < before(k+1)
		fromX, fromY := 0, 0 // where the round began, with one edit
		edit := 1
		switch {
		case d == 0:
			edit = 0
		case isAdded:
			fromX, fromY = before(k+1), before(k+1)-(k+1)
		default:
			fromX, fromY = before(k-1), before(k-1)-(k-1)
		}
		for x+y > fromX+fromY+edit {
			x, y = x-1, y-1
			lines = append(lines, line{kept, old[x]})
		}
		switch {
		case d == 0:
		case isAdded:
			lines = append(lines, line{added, new[fromY]})
		default:
			lines = append(lines, line{removed, old[fromX]})
		}
		x, y = fromX, fromY
	}
	slices.Reverse(lines)
	return lines
}

// numbered gives equal lines equal numbers, so that they compare fast.
func numbered(old, new []string) (a, b []int) {
	numbers := map[string]int{}
	number := func(lines []string) []int {
		out := make([]int, len(lines))
		for i, l := range lines {
			n, ok := numbers[l]
			if !ok {
				n = len(numbers)
				numbers[l] = n
			}
			out[i] = n
		}
		return out
	}
	return number(old), number(new)
}
