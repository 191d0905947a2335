package sync

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

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
	prefix := fmt.Sprintf("refs/crmirror/%s-%s/", cluster, hex.EncodeToString(sum[:4]))
	return RefNames{Applying: prefix + "applying", Base: prefix + "base", Held: prefix + "held", Approved: prefix + "approved"}
}

// All returns the names as a list, in the order base, held, approved, applying.
func (r RefNames) All() []string { return []string{r.Base, r.Held, r.Approved, r.Applying} }
