package sync

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/crmirror/crmirror/gitstore"
	"github.com/crmirror/crmirror/kube"
)

// heldFile is the one file in the tree of the held and approved refs' commits:
// the list of held deletions, as HeldSet.Text writes it.
const heldFile = "held"

// announceHeld lets refs/crmirror/<id>/held name exactly the deletions that
// wait, so that a person can read and approve them without asking the agent,
// and takes back an approval that was used or names nothing any more. Both go
// out with the next push.
func (m *Mirror) announceHeld(ctx context.Context, p *plan, now time.Time) error {
	if m.refless {
		return nil
	}
	if err := m.endApproval(ctx, p); err != nil {
		return err
	}
	if len(p.held) == 0 {
		m.told, m.heldAt = "", gitstore.Hash{}
		return m.repo.DeleteRef(ctx, m.refs.Held)
	}
	digest := p.held.Digest()
	if m.told == digest && !m.heldAt.IsZero() && m.repo.Ref(m.refs.Held) == m.heldAt {
		return nil
	}
	message := fmt.Sprintf("Hold %d deletions of %s\n\nLet them through with: crmirror approve %s\n", len(p.held), m.opts.ClusterName, digest)
	file := gitstore.File{Name: heldFile, Content: []byte(p.held.Text())}
	commit, err := m.repo.CommitFile([]gitstore.Hash{m.repo.Head()}, file, message, now)
	if err != nil {
		return err
	}
	if err := m.repo.SetRef(ctx, m.refs.Held, commit); err != nil {
		return err
	}
	m.heldAt = commit
	if m.told != digest {
		m.log.WithFields(logrus.Fields{"held": len(p.held), "digest": digest, "reason": p.held[0].Text, "first": p.held[0].Key}).
			Warnf("deletions are held; read them with git show %s:%s, let them through with crmirror approve %s", m.refs.Held, heldFile, digest)
	}
	m.told = digest
	return nil
}

// endApproval takes an approval back as soon as nothing that it names waits any
// more: there is no standing flag. It stays while a deletion that it names could
// not be carried out yet.
func (m *Mirror) endApproval(ctx context.Context, p *plan) error {
	if m.repo.Ref(m.refs.Approved).IsZero() {
		return nil
	}
	for key := range p.postponed {
		if p.approved[key] {
			return nil
		}
	}
	if m.two != nil && len(m.two.undone) > 0 {
		return nil
	}
	return m.repo.DeleteRef(ctx, m.refs.Approved)
}

// recallHeld learns from the held ref what an earlier process held, so that a
// restart releases nothing. A list that was never pushed is not known here; then
// the guard judges its deletions anew, as one event.
func (m *Mirror) recallHeld(ctx context.Context) error {
	if m.recalled {
		return nil
	}
	commit := m.repo.Ref(m.refs.Held)
	if commit.IsZero() {
		m.recalled = true
		return nil
	}
	set, err := readHeld(ctx, m.repo, commit)
	switch {
	case errors.Is(err, errNoList):
		m.log.WithError(err).WithField("ref", m.refs.Held).Warn("held deletions of before cannot be told; they are judged anew")
	case err != nil:
		return fmt.Errorf("read what is held: %w", err)
	}
	for _, h := range set {
		// No blob: whether it is still to be deleted is judged from its file.
		m.waiting[h.Key] = candidate{key: h.Key, path: PathOf(h.Key), reason: h.Reason}
	}
	m.held, m.told, m.heldAt, m.recalled = set, set.Digest(), commit, true
	return nil
}

// approved returns the deletions that a person let through. An approval names
// exactly one set; deletions held since are not in it. One that cannot be read
// now is an error, so that it is not taken back unused.
func (m *Mirror) approved(ctx context.Context) (map[kube.Key]bool, error) {
	commit := m.repo.Ref(m.refs.Approved)
	if commit.IsZero() {
		return nil, nil
	}
	set, err := readHeld(ctx, m.repo, commit)
	switch {
	case errors.Is(err, errNoList):
		m.log.WithError(err).WithField("ref", m.refs.Approved).Warn("approval names no deletions; it lets nothing through")
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read the approval: %w", err)
	}
	return set.Keys(), nil
}

// errNoList says that a commit was read and holds no list of deletions.
var errNoList = errors.New("it lists no deletions")

// readHeld reads the list that a commit of the held or approved ref carries.
// Every error but errNoList may pass.
func readHeld(ctx context.Context, repo *gitstore.Store, commit gitstore.Hash) (HeldSet, error) {
	content, ok, err := repo.ReadFile(ctx, commit, heldFile)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, fmt.Errorf("commit %s: %w", commit, errNoList)
	}
	set, err := ParseHeldSet(string(content))
	if err != nil {
		return nil, fmt.Errorf("commit %s: %w: %w", commit, errNoList, err)
	}
	return set, nil
}

// NotHeldError says that no held set has the digest that was to be approved.
type NotHeldError struct {
	Digest  string
	Current string // digest of what is held now; "" when nothing is
	Count   int
}

func (e *NotHeldError) Error() string {
	if e.Current == "" {
		return fmt.Sprintf("approve %s: nothing is held", e.Digest)
	}
	return fmt.Sprintf("approve %s: what is held now are %d deletions with digest %s; if you have read them: crmirror approve %s",
		e.Digest, e.Count, e.Current, e.Current)
}

// approveAttempts bounds the retries when the refs move under an approval.
const approveAttempts = 5

// Approve lets the held deletions with that digest through: it points the
// approved ref at the very commit that lists them. It returns the set, or a
// *NotHeldError.
func Approve(ctx context.Context, repo *gitstore.Store, refs RefNames, digest string) (HeldSet, error) {
	for attempt := 1; ; attempt++ {
		if err := repo.Fetch(ctx); err != nil {
			return nil, err
		}
		commit := repo.Ref(refs.Held)
		if commit.IsZero() {
			return nil, &NotHeldError{Digest: digest}
		}
		set, err := readHeld(ctx, repo, commit)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", refs.Held, err)
		}
		if set.Digest() != digest {
			return nil, &NotHeldError{Digest: digest, Current: set.Digest(), Count: len(set)}
		}
		if err := repo.SetRef(ctx, refs.Approved, commit); err != nil {
			return nil, err
		}
		err = repo.Push(ctx)
		if err == nil || !errors.Is(err, gitstore.ErrDiverged) || attempt == approveAttempts {
			return set, err
		}
	}
}

// WhyHeld returns why the deletion of an object's file waits for approval, and whether it does,
// by what the held ref here says.
func WhyHeld(ctx context.Context, repo *gitstore.Store, refs RefNames, key kube.Key) (string, bool, error) {
	commit := repo.Ref(refs.Held)
	if commit.IsZero() {
		return "", false, nil
	}
	set, err := readHeld(ctx, repo, commit)
	if err != nil {
		return "", false, fmt.Errorf("read %s: %w", refs.Held, err)
	}
	for _, h := range set {
		if h.Key == key {
			return cmp.Or(h.Text, h.Reason.String()), true, nil
		}
	}
	return "", false, nil
}
