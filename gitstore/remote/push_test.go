package remote

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/crmirror/crmirror/gitstore/object"
)

// TestPushUnreported: a server that does not say what became of a ref is asked
// what it has.
func TestPushUnreported(t *testing.T) {
	pkt := func(s string) string { return fmt.Sprintf("%04x%s", len(s)+4, s) }
	const ref, other = "refs/heads/main", "refs/heads/other"
	head := plumbing.NewHash(strings.Repeat("1", 40))
	tests := []struct {
		name, caps, report string
		moves              bool
		want               error
	}{
		{"reported", "report-status", pkt("unpack ok\n") + pkt("ok "+ref+"\n") + "0000", false, nil},
		{"no report, moved", "", "", true, nil},
		{"no report, not moved", "", "", false, ErrRefused},
		{"left out, moved", "report-status", pkt("unpack ok\n") + "0000", true, nil},
		{"left out, not moved", "report-status", pkt("unpack ok\n") + "0000", false, ErrRefused},
		{"another instead", "report-status", pkt("unpack ok\n") + pkt("ok "+other+"\n") + "0000", false, ErrRefused},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			has := ""
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodGet {
					first := object.Hash{}.String() + " capabilities^{}"
					if has != "" {
						first = has + " " + ref
					}
					w.Header().Set("Content-Type", "application/x-git-receive-pack-advertisement")
					_, _ = io.WriteString(w, pkt("# service=git-receive-pack\n")+"0000"+pkt(first+"\x00"+tt.caps+"\n")+"0000")
					return
				}
				_, _ = io.Copy(io.Discard, r.Body)
				if tt.moves {
					has = head.String()
				}
				_, _ = io.WriteString(w, tt.report)
			}))
			defer server.Close()
			r, err := New(server.URL+"/x.git", Auth{}, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			err = r.Push(t.Context(), PushRequest{Commands: []Command{{Ref: ref, New: head}}})
			if !errors.Is(err, tt.want) {
				t.Errorf("Push: %v, want %v", err, tt.want)
			}
		})
	}
}
