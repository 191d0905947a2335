package restore

// order says which of n tasks wait for which. It is pure.
type order struct {
	owners     [][]int // by task: the tasks that it waits for
	dependents [][]int // by task: the tasks that wait for it
	missing    []int   // by task: how many of its owners are not done
}

// newOrder makes the order of tasks whose owners are known, each once.
func newOrder(owners [][]int) *order {
	o := &order{owners: owners, dependents: make([][]int, len(owners)), missing: make([]int, len(owners))}
	for task, of := range owners {
		o.missing[task] = len(of)
		for _, owner := range of {
			o.dependents[owner] = append(o.dependents[owner], task)
		}
	}
	return o
}

// ready returns the tasks that wait for none.
func (o *order) ready() []int {
	var ready []int
	for task, n := range o.missing {
		if n == 0 {
			ready = append(ready, task)
		}
	}
	return ready
}

// done returns the tasks that only waited for this one.
func (o *order) done(task int) []int {
	var ready []int
	for _, dependent := range o.dependents[task] {
		if o.missing[dependent]--; o.missing[dependent] == 0 {
			ready = append(ready, dependent)
		}
	}
	return ready
}

// circles returns the tasks that lie on a circle of owners, or between two: each waits for
// itself in the end.
func (o *order) circles() []int {
	const gone = -1
	down := make([]int, len(o.owners))
	var first []int
	for task, owners := range o.owners {
		if down[task] = len(owners); down[task] == 0 {
			first = append(first, task)
		}
	}
	trim(down, first, o.dependents)
	// What is left is on a circle or waits for one. The latter have no dependents that are on one.
	up := make([]int, len(o.owners))
	var last []int
	for task := range up {
		if down[task] == 0 {
			up[task] = gone
			continue
		}
		for _, dependent := range o.dependents[task] {
			if down[dependent] > 0 {
				up[task]++
			}
		}
		if up[task] == 0 {
			last = append(last, task)
		}
	}
	trim(up, last, o.owners)
	var circles []int
	for task, n := range up {
		if n > 0 {
			circles = append(circles, task)
		}
	}
	return circles
}

// trim takes away the tasks of a list, and each to which that leaves nothing to wait for.
func trim(missing, list []int, next [][]int) {
	for len(list) > 0 {
		task := list[len(list)-1]
		list = list[:len(list)-1]
		for _, n := range next[task] {
			if missing[n]--; missing[n] == 0 {
				list = append(list, n)
			}
		}
	}
}
