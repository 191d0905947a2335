package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/crmirror/crmirror/gitstore"
)

// dateForms are the dates that are taken, for help and errors.
const dateForms = `2026-11-30, "2026-11-30 14:30[:05][ ZONE]", 2026-11-30T14:30:05+01:00, or "2h ago" (s, m, h, d, w)`

// resolveAt returns the commit that --at names, and what it says of itself: a revision (commit,
// tag or branch), else the branch's state at a date, in a zone unless it names its own; a day
// is its end. An empty one is the branch's newest commit. An error for what is neither is one of usage.
func resolveAt(ctx context.Context, store *gitstore.Store, at string, zone *time.Location) (gitstore.Hash, gitstore.CommitInfo, error) {
	commit, err := store.Resolve(ctx, at)
	if errors.Is(err, gitstore.ErrNoRevision) && at != "" && at != "HEAD" {
		_, until, dateErr := parseDate(at, time.Now().In(zone))
		if dateErr != nil {
			if strings.ContainsAny(at, "~^@") {
				return gitstore.Hash{}, gitstore.CommitInfo{}, usagef("%w; of git's notation ~, ^ and @ are not taken: give a hash, as crmirror log and git log tell it", err)
			}
			return gitstore.Hash{}, gitstore.CommitInfo{}, usagef("%w; nor is it a date: %w", err, dateErr)
		}
		commit, err = store.At(ctx, until)
	}
	if err != nil {
		return gitstore.Hash{}, gitstore.CommitInfo{}, err
	}
	info, err := store.Info(commit)
	return commit, info, err
}

// commitAt is resolveAt on what the repository has now.
func (s *session) commitAt(ctx context.Context, at string) (gitstore.Hash, gitstore.CommitInfo, error) {
	if !s.cfg.Repository.IsPath() {
		if err := s.store.Fetch(ctx); err != nil {
			return gitstore.Hash{}, gitstore.CommitInfo{}, err
		}
	}
	return resolveAt(ctx, s.store, at, time.Local)
}

// parseDate returns the first and the last moment that a text names: they differ for a whole
// minute, second or day. now says what it is relative to, and its zone counts where the text names none.
func parseDate(text string, now time.Time) (first, last time.Time, err error) {
	if t, ok := parseAgo(text, now); ok {
		return t, t, nil
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, t.Add(time.Second - 1), nil
	}
	spaced := text
	if day, clock, ok := strings.Cut(text, "T"); ok && len(day) == len("2006-01-02") {
		spaced = day + " " + clock
	}
	stamp, zone, err := cutZone(spaced, now.Location())
	if err != nil {
		return first, last, err
	}
	if t, err := time.ParseInLocation("2006-01-02", stamp, zone); err == nil {
		return t, t.AddDate(0, 0, 1).Add(-1), nil
	}
	for _, form := range []struct {
		layout string
		span   time.Duration
	}{{"2006-01-02 15:04", time.Minute}, {"2006-01-02 15:04:05", time.Second}} {
		if t, err := time.ParseInLocation(form.layout, stamp, zone); err == nil {
			return t, t.Add(form.span - 1), nil
		}
	}
	return first, last, fmt.Errorf("%q has none of the forms %s", text, dateForms)
}

// parseAgo reads "2h ago": a number and a unit, once.
func parseAgo(text string, now time.Time) (time.Time, bool) {
	match := regexp.MustCompile(`^(\d{1,6}) ?([smhdw]) ago$`).FindStringSubmatch(text)
	if match == nil {
		return time.Time{}, false
	}
	n, err := strconv.Atoi(match[1])
	if err != nil {
		return time.Time{}, false
	}
	switch match[2] {
	case "d":
		return now.AddDate(0, 0, -n), true
	case "w":
		return now.AddDate(0, 0, -7*n), true
	}
	unit := map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour}[match[2]]
	return now.Add(-time.Duration(n) * unit), true
}

// cutZone takes the zone from the end of a date and time: Z, an offset, or a name of the time zone database.
func cutZone(text string, otherwise *time.Location) (stamp string, zone *time.Location, err error) {
	match := regexp.MustCompile(`^(\d{4}-\d\d-\d\d(?: \d\d:\d\d(?::\d\d)?)?) ?([A-Za-z+-].*)$`).FindStringSubmatch(text)
	if match == nil {
		return text, otherwise, nil
	}
	if match[2] == "Z" {
		return match[1], time.UTC, nil
	}
	for _, layout := range []string{"-07:00", "-0700", "-07"} {
		if t, err := time.Parse(layout, match[2]); err == nil {
			return match[1], t.Location(), nil
		}
	}
	if zone, err = time.LoadLocation(match[2]); err != nil {
		return "", nil, fmt.Errorf("%q is no time zone here; give an offset, as in %s +01:00", match[2], match[1])
	}
	return match[1], zone, nil
}
