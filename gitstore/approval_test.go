package gitstore

import "testing"

// TestApprovalAfterPush: an approval that arrives after a push is taken, used and given back.
func TestApprovalAfterPush(t *testing.T) {
	bare, dir := ownClone(t)
	const held, approved = "refs/crmirror/x/held", "refs/crmirror/x/approved"
	s := open(t, Options{Dir: dir, Path: "p", Refs: []string{held, approved}})
	fetch(t, s)
	commit(t, s, "one", put("a", "1\n"))
	push(t, s)
	git(t, bare, "update-ref", approved, "main")
	fetch(t, s)
	if s.Ref(approved).IsZero() {
		t.Fatal("approval not read")
	}
	commit(t, s, "two", put("a", "2\n"))
	if err := s.DeleteRef(t.Context(), approved); err != nil {
		t.Fatal(err)
	}
	push(t, s)
	if got := git(t, bare, "for-each-ref", "--format=%(refname)", "refs/crmirror"); got != "" {
		t.Errorf("after the push that takes it back, the remote has %q", got)
	}
	commit(t, s, "three", put("a", "3\n"))
	push(t, s)
	if got := git(t, bare, "for-each-ref", "--format=%(refname)", "refs/crmirror"); got != "" {
		t.Errorf("after one more push, the remote has %q", got)
	}
	// A restart takes it for a new approval.
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	again := open(t, Options{Dir: dir, Path: "p", Refs: []string{held, approved}})
	fetch(t, again)
	if !again.Ref(approved).IsZero() {
		t.Error("after a restart the used approval is there again")
	}
}
