package restore

import (
	"slices"
	"testing"
)

func TestOrder(t *testing.T) {
	// 0 owns 1 and 2, both own 3; 4 stands alone.
	o := newOrder([][]int{nil, {0}, {0}, {1, 2}, nil})
	for _, step := range []struct {
		got, want []int
	}{
		{o.ready(), []int{0, 4}},
		{o.done(4), nil},
		{o.done(0), []int{1, 2}},
		{o.done(2), nil},
		{o.done(1), []int{3}},
		{o.circles(), nil},
	} {
		if !slices.Equal(step.got, step.want) {
			t.Errorf("got %v, want %v", step.got, step.want)
		}
	}
}

func TestOrderCircles(t *testing.T) {
	for name, test := range map[string]struct {
		owners [][]int
		want   []int
	}{
		"none":                      {[][]int{nil, {0}}, nil},
		"itself":                    {[][]int{{0}, nil}, []int{0}},
		"two":                       {[][]int{{1}, {0}}, []int{0, 1}},
		"one that waits for them":   {[][]int{{1}, {0}, {0}, {2}}, []int{0, 1}},
		"one that they wait for":    {[][]int{{1, 2}, {0}, nil}, []int{0, 1}},
		"between two":               {[][]int{{1}, {0}, {0}, {2, 4}, {3}}, []int{0, 1, 2, 3, 4}},
		"with one owner in a third": {[][]int{{2}, {0}, {1}, nil}, []int{0, 1, 2}},
	} {
		if got := newOrder(test.owners).circles(); !slices.Equal(got, test.want) {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
	}
}
