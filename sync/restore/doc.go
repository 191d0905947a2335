// Package restore brings the custom resources of a cluster back from a commit.
//
// Data flows one way: a commit's tree becomes a Snapshot; Snapshot, Options and the
// live cluster become a Plan, which is data and shows what would be done; the
// Executor does it, phase by phase, and writes a Report; Verify reads
// everything back. Nothing is remembered between runs: what an interrupted run left
// undone is what the next plan says.
//
// Invariant: nothing in the cluster is ever deleted, and nothing that differs from
// git is overwritten without Options.Existing saying so.
package restore
