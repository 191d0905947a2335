package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/crmirror/crmirror/gitstore"
	"github.com/crmirror/crmirror/gitstore/gittest"
	"github.com/crmirror/crmirror/gitstore/pack"
)

// flat is a folder with so many files, here and at its remote.
type flat struct {
	*filled
	server *gittest.HTTP
	repo   string // our clone's git folder
}

// cost is what one commit and its push cost.
type cost struct {
	seconds                float64 // less the time inside the server
	objects, written, sent float64
}

// newFlat makes such a folder and pushes it.
func newFlat(ctx context.Context, b *bench, dir string, server *gittest.HTTP, n int) (*flat, error) {
	name := fmt.Sprintf("flat-%d.git", n)
	if err := gittest.InitBare(ctx, filepath.Join(dir, name), "main"); err != nil {
		return nil, err
	}
	cache, err := b.folder("flat")
	if err != nil {
		return nil, err
	}
	s, err := openStore(ctx, cache, server.URL(name))
	if err != nil {
		return nil, err
	}
	b.cleanup(s.Close)
	if err := s.Fetch(ctx); err != nil {
		return nil, err
	}
	f := &flat{&filled{Store: s, list: files(n, 1)}, server, filepath.Join(cache, "cache", "repo.git")}
	if _, err := timeCommit(ctx, s, edits(f.list)); err != nil {
		return nil, err
	}
	return f, s.Push(ctx)
}

// one commits and pushes one changed object. What the push merges is not of this
// commit alone and does not count.
func (f *flat) one(ctx context.Context) (cost, error) {
	c, err := f.commitOne(ctx)
	if err != nil {
		return c, err
	}
	sent, busy := f.server.Received(), f.server.Busy()
	begin := time.Now()
	if err := f.Push(ctx); err != nil {
		return c, err
	}
	c.seconds += (time.Since(begin) - (f.server.Busy() - busy)).Seconds()
	c.sent = float64(f.server.Received() - sent)
	return c, nil
}

// commitOne commits one changed object.
func (f *flat) commitOne(ctx context.Context) (c cost, err error) {
	changes := edits(f.change(1))
	before, err := f.packs()
	if err != nil {
		return c, err
	}
	if c.seconds, err = timeCommit(ctx, f.Store, changes); err != nil {
		return c, err
	}
	after, err := f.packs()
	if err != nil {
		return c, err
	}
	for name, size := range after {
		if _, there := before[name]; there {
			continue
		}
		c.written += float64(size)
		if strings.HasSuffix(name, ".pack") {
			p := pack.Open(name)
			c.objects += float64(p.Count())
			if err := p.Close(); err != nil {
				return c, err
			}
		}
	}
	return c, nil
}

// packs are the files of our clone's packs, with their sizes.
func (f *flat) packs() (map[string]int64, error) {
	names, err := filepath.Glob(filepath.Join(f.repo, "objects", "pack", "pack-*"))
	if err != nil {
		return nil, err
	}
	sizes := map[string]int64{}
	for _, name := range names {
		info, err := os.Stat(name)
		if err != nil {
			return nil, err
		}
		sizes[name] = info.Size()
	}
	return sizes, nil
}

// some commits and pushes so many objects, one by one, and returns the medians.
func (f *flat) some(ctx context.Context, count int) (c cost, err error) {
	all := make([]cost, count)
	for i := range all {
		if all[i], err = f.one(ctx); err != nil {
			return c, err
		}
	}
	of := func(pick func(cost) float64) float64 {
		values := make([]float64, count)
		for i, c := range all {
			values[i] = pick(c)
		}
		return median(values)
	}
	return cost{
		seconds: of(func(c cost) float64 { return c.seconds }),
		objects: of(func(c cost) float64 { return c.objects }),
		written: of(func(c cost) float64 { return c.written }),
		sent:    of(func(c cost) float64 { return c.sent }),
	}, nil
}

// flatFolder measures that a commit and its push do not cost more the more files
// lie beside what changed.
func flatFolder(ctx context.Context, b *bench) error {
	dir, server, err := b.server()
	if err != nil {
		return err
	}
	const many, few = 10000, 100
	large, err := newFlat(ctx, b, dir, server, many)
	if err != nil {
		return err
	}
	small, err := newFlat(ctx, b, dir, server, few)
	if err != nil {
		return err
	}
	var l, s []cost
	measure := func(f *flat, to *[]cost) func() (float64, error) {
		return func() (float64, error) {
			c, err := f.some(ctx, b.size(30, 10))
			*to = append(*to, c)
			return c.seconds, err
		}
	}
	o, r, err := b.compare(measure(large, &l), measure(small, &s))
	if err != nil {
		return err
	}
	row := func(what, unit string, bar float64, pick func(cost) float64) {
		var ours, reference []float64
		for i := range l {
			ours, reference = append(ours, pick(l[i])), append(reference, pick(s[i]))
		}
		b.add(fmt.Sprintf("%s in a folder of %d files, reference in one of %d", what, many, few), unit, bar, ours, reference)
	}
	row("objects of a commit", "", 1.1, func(c cost) float64 { return c.objects })
	row("bytes written by a commit", "bytes", 1.1, func(c cost) float64 { return c.written })
	row("bytes sent by its push", "bytes", 1.1, func(c cost) float64 { return c.sent })
	b.add(fmt.Sprintf("commit and push in a folder of %d files, reference in one of %d", many, few), "s", 1.5, o, r)
	return flatOwn(ctx, b, many, few)
}

// flatOwn tells what a commit writes where git reads too: there no pack may lean on
// another.
func flatOwn(ctx context.Context, b *bench, many, few int) error {
	var written [2][]float64
	for i, n := range []int{many, few} {
		dir, err := b.folder("own")
		if err != nil {
			return err
		}
		s, err := gitstore.Open(ctx, gitstore.Options{Dir: filepath.Join(dir, "own")})
		if err != nil {
			return err
		}
		b.cleanup(s.Close)
		f := &flat{filled: &filled{Store: s, list: files(n, 1)}, repo: filepath.Join(dir, "own", ".git")}
		if _, err := timeCommit(ctx, s, edits(f.list)); err != nil {
			return err
		}
		for range b.runs {
			c, err := f.commitOne(ctx)
			if err != nil {
				return err
			}
			written[i] = append(written[i], c.written)
		}
	}
	b.add(fmt.Sprintf("bytes written by a commit in a folder of %d files of a repository that git reads", many), "bytes", 0, written[0], written[1])
	return nil
}
