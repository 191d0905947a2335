package restore

import (
	"encoding/json"
	"testing"

	"github.com/crmirror/crmirror/gitstore"
)

// A commit is text in JSON, whoever reports it, by value or by pointer.
func TestCommitIsText(t *testing.T) {
	commit := gitstore.Hash{0xab, 19: 0xcd}
	for name, v := range map[string]any{
		"plan": Plan{Commit: commit}, "report": Report{Commit: commit}, "verification": Verification{Commit: commit},
		"*plan": &Plan{Commit: commit}, "*report": &Report{Commit: commit}, "*verification": &Verification{Commit: commit},
	} {
		content, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		var got struct {
			Commit     string  `json:"commit"`
			ClusterUID *string `json:"clusterUID"`
		}
		if err := json.Unmarshal(content, &got); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got.Commit != commit.String() || got.ClusterUID == nil {
			t.Errorf("%s: got %s, want the commit %s and the other fields", name, content, commit)
		}
	}
}
