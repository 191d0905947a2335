package sync

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/crmirror/crmirror/gitstore"
)

// Adoption tells what Adopt did.
type Adoption struct {
	Already bool   // the path was this cluster's before
	Rewound bool   // it was, and its branch had been rewound
	Emptied bool   // it was, and its files were gone from the branch
	From    string // uid of the cluster that it belonged to; "" when that could not be told
	Name    string // that cluster's name
	Files   int    // files of ours that it held
	Commit  string
}

// Adopt lets this cluster take the path in git over: .crmirror.yaml names its
// uid from then on. What git holds and this cluster lacks is not deleted for
// it; such deletions are held until they are approved.
func (m *Mirror) Adopt(ctx context.Context, now time.Time) (*Adoption, error) {
	for attempt := 1; ; attempt++ {
		if err := m.refresh(ctx); err != nil {
			return nil, err
		}
		done, err := m.adopt(ctx, now)
		if err != nil || done.Already {
			return done, err
		}
		err = m.repo.Push(ctx)
		if err == nil {
			return done, nil
		}
		m.stale = true
		if !errors.Is(err, gitstore.ErrDiverged) || attempt == rederivations {
			return nil, err
		}
	}
}

func (m *Mirror) adopt(ctx context.Context, now time.Time) (*Adoption, error) {
	done := &Adoption{Files: m.index.known()}
	if m.marker != nil {
		done.From, done.Name = m.marker.ClusterUID, m.marker.Cluster
	}
	if (m.marker == nil && done.Files == 0) || done.From == m.uid {
		var err error
		if m.two != nil {
			err = m.adoptBranch(ctx, done, now)
		}
		done.Already = !done.Rewound && !done.Emptied
		return done, err
	}
	tree := m.opts.Tree
	if m.marker != nil {
		tree = *m.marker // the shape stays what it is; the agent re-encodes when its rules differ
	}
	tree.Cluster, tree.ClusterUID = m.opts.ClusterName, m.uid
	tree.Adopted = &TreeAdoption{From: done.From, Commit: m.repo.Head().String()}
	content, err := tree.Marshal()
	if err != nil {
		return nil, err
	}
	message := fmt.Sprintf("Adopt %d files for cluster %s\n\nFrom cluster uid: %s\nTo cluster uid: %s\n\nCrmirror-Cluster: %s\n",
		done.Files, m.opts.ClusterName, orUnknown(done.From), m.uid, m.opts.ClusterName)
	head, err := m.repo.Commit(ctx, gitstore.Commit{
		Edits: []gitstore.Edit{{Path: MarkerName, Content: content}}, Message: message, When: now,
	})
	if err != nil {
		return nil, err
	}
	done.Commit = head.String()
	m.marker, m.at = &tree, head
	if err := m.moveBase(ctx, now); err != nil {
		return nil, err
	}
	_, err = m.repo.UpdateWorktree(ctx)
	return done, err
}

// adoptBranch lets base stand on the branch as it is now. Of one that was rewound, what was
// agreed stays, and what the branch says differently is judged against it. Of one
// that was emptied nothing does: what the cluster has is new to git.
func (m *Mirror) adoptBranch(ctx context.Context, done *Adoption, now time.Time) error {
	var emptied *EmptiedError
	var rewound *RewoundError
	var gone *BranchGoneError
	var edits []gitstore.Edit
	marker := m.checkMarker()
	if errors.As(marker, &gone) {
		return marker
	}
	if done.Emptied = errors.As(marker, &emptied); done.Emptied {
		files, err := m.repo.FilesIn(m.refs.Base)
		if err != nil {
			return err
		}
		for path := range files {
			edits = append(edits, gitstore.Edit{Path: path, Delete: true})
		}
	} else {
		err := m.checkLineage()
		if done.Rewound = errors.As(err, &rewound); !done.Rewound {
			return err
		}
	}
	_, err := m.repo.DeriveBase(ctx, m.refs.Base, edits, m.baseMessage(m.deleted), now)
	return err
}

func orUnknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}
