package sync

import (
	"maps"
	"strings"
	"time"

	"github.com/crmirror/crmirror/kube"
)

const (
	// deletedPrefix begins a line of the base commit's message that names a deletion.
	deletedPrefix = "Deleted: "
	// recalledDeletions bounds how many of them it names.
	recalledDeletions = 1000
)

// baseMessage is the message of the base commit. It also carries the guard's
// rolling window, so that a backup that cron starts every minute, or an agent
// that crashes in a loop, does not begin counting anew each time.
func (m *Mirror) baseMessage(deleted map[kube.Key]time.Time) string {
	var b strings.Builder
	b.WriteString("Agree on " + m.opts.ClusterName + "\n")
	for i, key := range sortedKeys(deleted) {
		if i == 0 {
			b.WriteByte('\n')
		}
		if i == recalledDeletions {
			break
		}
		b.WriteString(deletedPrefix + deleted[key].UTC().Format(time.RFC3339) + " " + heldName(key) + "\n")
	}
	return b.String()
}

// recallDeletions reads what an earlier process deleted without approval.
func (m *Mirror) recallDeletions(message string) {
	for line := range strings.Lines(message) {
		rest, ok := strings.CutPrefix(strings.TrimSpace(line), deletedPrefix)
		if !ok {
			continue
		}
		at, name, _ := strings.Cut(rest, " ")
		when, timeErr := time.Parse(time.RFC3339, at)
		key, keyErr := parseHeldName(name)
		if timeErr == nil && keyErr == nil {
			m.deleted[key] = when
		}
	}
}

// forgetOld drops deletions that are older than the guard's rolling window.
func (m *Mirror) forgetOld(now time.Time) {
	maps.DeleteFunc(m.deleted, func(_ kube.Key, when time.Time) bool { return now.Sub(when) > GuardWindow })
}
