package sync

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// refPrefix is what the names of our refs begin with, unless configured otherwise.
const refPrefix = "refs/crmirror"

// RefNames are the refs that belong to one cluster's path on one branch.
type RefNames struct {
	Applying string // writes to the cluster that are announced and not settled
	Base     string // what cluster and git last agreed on
	Held     string // the deletions that wait for approval
	Approved string // the deletions that a person let through
}

// Refs returns the names of our refs. The id in them is the cluster's name and a
// short digest of branch and path, so that two agents never share a ref.
func Refs(cluster, branch, path string) RefNames {
	sum := sha256.Sum256([]byte(branch + "\x00" + path))
	prefix := fmt.Sprintf(refPrefix+"/%s-%s/", cluster, hex.EncodeToString(sum[:4]))
	return RefNames{Applying: prefix + "applying", Base: prefix + "base", Held: prefix + "held", Approved: prefix + "approved"}
}

// Below returns the same refs below another prefix than refs/crmirror, for a forge
// that takes none but branches: "refs/heads/crmirror". An empty prefix changes nothing.
func (r RefNames) Below(prefix string) RefNames {
	move := func(name string) string { return prefix + strings.TrimPrefix(name, refPrefix) }
	if prefix == "" {
		return r
	}
	return RefNames{Applying: move(r.Applying), Base: move(r.Base), Held: move(r.Held), Approved: move(r.Approved)}
}

// All returns the names as a list, in the order base, held, approved, applying.
func (r RefNames) All() []string { return []string{r.Base, r.Held, r.Approved, r.Applying} }
