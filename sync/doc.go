// Package sync decides what is carried between a cluster and a git repository,
// and when. Data flows one way: what the informers see fills the Inbox and its
// Batch; the Loop waits for a batch to close; one Cycle of the Mirror judges it
// against the branch's head (plan), commits, and pushes; a Report tells what
// became of it. Paths, commit messages, the guard on deletions and the plan are
// data from data; only Mirror does I/O, and only Batch and Loop know time.
package sync
