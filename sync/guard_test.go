package sync

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/crmirror/crmirror/kube"
)

var (
	guardNow     = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	certificates = schema.GroupResource{Group: "cert-manager.io", Resource: "certificates"}
	issuers      = schema.GroupResource{Group: "cert-manager.io", Resource: "issuers"}
)

func objects(gr schema.GroupResource, from, to int) []kube.Key {
	var keys []kube.Key
	for i := from; i < to; i++ {
		keys = append(keys, kube.Key{Group: gr.Group, Resource: gr.Resource, Namespace: "shop", Name: fmt.Sprintf("o%04d", i)})
	}
	return keys
}

func candidates(r Reason, keys ...kube.Key) []Candidate {
	var out []Candidate
	for _, k := range keys {
		out = append(out, Candidate{Key: k, Reason: r})
	}
	return out
}

func history(gr schema.GroupResource, n int, age time.Duration) []Deletion {
	return slices.Repeat([]Deletion{{Resource: gr, When: guardNow.Add(-age)}}, n)
}

func heldBefore(r Reason, text string, age time.Duration, keys ...kube.Key) HeldSet {
	var set HeldSet
	for _, k := range keys {
		set = append(set, Held{Key: k, Reason: r, Text: text, Since: guardNow.Add(-age)})
	}
	return set
}

func TestGuard(t *testing.T) {
	limits := Limits{MaxDeleteObjects: 50, MaxDeletePercent: 30}
	type files = map[schema.GroupResource]int
	tests := []struct {
		name    string
		in      GuardInput
		allowed int
		held    map[string]int // text → how many
	}{
		{"nothing", GuardInput{}, 0, nil},
		{"one of many", GuardInput{Candidates: candidates(ReasonDeleted, objects(certificates, 0, 1)...), Files: files{certificates: 100}}, 1, nil},
		{"the only one", GuardInput{Candidates: candidates(ReasonDeleted, objects(issuers, 0, 1)...), Files: files{issuers: 1}}, 1, nil},
		{"both", GuardInput{Candidates: candidates(ReasonDeleted, objects(issuers, 0, 2)...), Files: files{issuers: 2}}, 2, nil},
		{"all three", GuardInput{Candidates: candidates(ReasonDeleted, objects(issuers, 0, 3)...), Files: files{issuers: 3, certificates: 9}}, 0,
			map[string]int{"all 3 issuers.cert-manager.io vanished at once": 3}},
		{"nine of ten", GuardInput{Candidates: candidates(ReasonDeleted, objects(issuers, 0, 9)...), Files: files{issuers: 10}}, 9, nil},
		{"ten, over the percentage", GuardInput{Candidates: candidates(ReasonDeleted, objects(issuers, 0, 10)...), Files: files{issuers: 33}}, 0,
			map[string]int{"10 of 33 issuers.cert-manager.io deleted within 10 minutes, more than maxDeletePercent (30)": 10}},
		{"ten, within the percentage", GuardInput{Candidates: candidates(ReasonDeleted, objects(issuers, 0, 10)...), Files: files{issuers: 34}}, 10, nil},
		{"exactly the percentage", GuardInput{Candidates: candidates(ReasonDeleted, objects(issuers, 0, 12)...), Files: files{issuers: 40}}, 12, nil},
		{"at the limit", GuardInput{Candidates: candidates(ReasonDeleted, objects(certificates, 0, 50)...), Files: files{certificates: 1000}}, 50, nil},
		{"over the limit", GuardInput{Candidates: candidates(ReasonDeleted, objects(certificates, 0, 51)...), Files: files{certificates: 1000}}, 0,
			map[string]int{"51 certificates.cert-manager.io deleted within 10 minutes, more than maxDeleteObjects (50)": 51}},
		{"over the limit with what was executed", GuardInput{
			Candidates: candidates(ReasonDeleted, objects(certificates, 0, 20)...), Files: files{certificates: 1000},
			History: history(certificates, 31, 9*time.Minute)}, 0,
			map[string]int{"51 certificates.cert-manager.io deleted within 10 minutes, more than maxDeleteObjects (50)": 20}},
		{"what was executed long ago", GuardInput{
			Candidates: candidates(ReasonDeleted, objects(certificates, 0, 20)...), Files: files{certificates: 1000},
			History: history(certificates, 31, 10*time.Minute)}, 20, nil},
		{"the percentage is of the files before the window", GuardInput{
			Candidates: candidates(ReasonDeleted, objects(issuers, 0, 5)...), Files: files{issuers: 35},
			History: history(issuers, 5, time.Minute)}, 5, nil},
		{"another resource goes on", GuardInput{
			Candidates: append(candidates(ReasonKindGone, objects(issuers, 0, 60)...), candidates(ReasonDeleted, objects(certificates, 0, 2)...)...),
			Files:      files{issuers: 100, certificates: 100}}, 2, map[string]int{"the kind is gone from the cluster": 60}},
		{"one resource's share waits, the other goes on", GuardInput{
			Candidates: append(candidates(ReasonDeleted, objects(issuers, 0, 12)...), candidates(ReasonDeleted, objects(certificates, 0, 2)...)...),
			Files:      files{issuers: 20, certificates: 100}}, 2,
			map[string]int{"12 of 20 issuers.cert-manager.io deleted within 10 minutes, more than maxDeletePercent (30)": 12}},
		{"too many in all", GuardInput{
			Candidates: append(candidates(ReasonDeleted, objects(issuers, 0, 26)...), candidates(ReasonUnselected, objects(certificates, 0, 25)...)...),
			Files:      files{issuers: 100, certificates: 100}}, 0,
			map[string]int{"51 objects deleted within 10 minutes, more than maxDeleteObjects (50)": 51}},
		{"adopted", GuardInput{Candidates: candidates(ReasonAdopted, objects(certificates, 0, 1)...), Files: files{certificates: 100}}, 0,
			map[string]int{"in git when this cluster adopted it, never seen in this cluster": 1}},
		{"held stays held", GuardInput{
			Candidates: candidates(ReasonDeleted, objects(certificates, 0, 3)...), Files: files{certificates: 100},
			Held: heldBefore(ReasonDeleted, "too many", time.Hour, objects(certificates, 0, 2)...)}, 1, map[string]int{"too many": 2}},
		{"held stays held though its kind is back", GuardInput{
			Candidates: candidates(ReasonDeleted, objects(certificates, 0, 1)...), Files: files{certificates: 100},
			Held: heldBefore(ReasonKindGone, "kind gone", time.Hour, objects(certificates, 0, 1)...)}, 0, map[string]int{"held before: kind gone": 1}},
		{"what is held since then counts", GuardInput{
			Candidates: candidates(ReasonDeleted, objects(certificates, 0, 60)...), Files: files{certificates: 1000},
			Held: heldBefore(ReasonDeleted, "too many", time.Minute, objects(certificates, 0, 51)...)}, 0,
			map[string]int{"too many": 51, "60 certificates.cert-manager.io deleted within 10 minutes, more than maxDeleteObjects (50)": 9}},
		{"what is held for long does not", GuardInput{
			Candidates: candidates(ReasonDeleted, objects(certificates, 0, 60)...), Files: files{certificates: 1000},
			Held: heldBefore(ReasonDeleted, "too many", time.Hour, objects(certificates, 0, 51)...)}, 9, map[string]int{"too many": 51}},
		{"approved, and only those", GuardInput{
			Candidates: candidates(ReasonKindGone, objects(issuers, 0, 60)...), Files: files{issuers: 60},
			Approved: heldBefore(ReasonKindGone, "", 0, objects(issuers, 0, 58)...).Keys()}, 58, map[string]int{"the kind is gone from the cluster": 2}},
		{"approved ones do not count", GuardInput{
			Candidates: candidates(ReasonDeleted, objects(certificates, 0, 61)...), Files: files{certificates: 1000},
			Approved: heldBefore(ReasonDeleted, "", 0, objects(certificates, 0, 60)...).Keys()}, 61, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.in.Limits, tt.in.Now = limits, guardNow
			allowed, held := Guard(tt.in)
			if len(allowed) != tt.allowed {
				t.Errorf("%d allowed, want %d", len(allowed), tt.allowed)
			}
			since := map[kube.Key]time.Time{}
			for _, h := range tt.in.Held {
				since[h.Key] = h.Since
			}
			got := map[string]int{}
			for _, h := range held {
				got[h.Text]++
				if want, ok := since[h.Key]; ok && h.Since != want || !ok && h.Since != guardNow {
					t.Errorf("%v is held since %v", h.Key, h.Since)
				}
			}
			if tt.held == nil {
				tt.held = map[string]int{}
			}
			if diff := cmp.Diff(tt.held, got); diff != "" {
				t.Errorf("held (-want +got):\n%s", diff)
			}
		})
	}
}

func TestGuardWithoutLimitsHoldsAll(t *testing.T) {
	in := GuardInput{Candidates: candidates(ReasonDeleted, objects(certificates, 0, 1)...), Now: guardNow, Files: map[schema.GroupResource]int{certificates: 100}}
	if allowed, held := Guard(in); len(allowed) != 0 || len(held) != 1 {
		t.Errorf("the zero Limits allow %v, hold %v", allowed, held)
	}
}

// TestGuardProperties plays random deletions against the guard as its caller
// does, and checks what must always hold.
func TestGuardProperties(t *testing.T) {
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		limits := Limits{MaxDeleteObjects: rnd.IntN(40), MaxDeletePercent: rnd.IntN(101)}
		alive := map[kube.Key]bool{}
		for _, k := range slices.Concat(objects(certificates, 0, rnd.IntN(150)), objects(issuers, 0, rnd.IntN(20))) {
			alive[k] = true
		}
		absent := map[kube.Key]Reason{}
		var executed []Deletion
		var held HeldSet
		now := guardNow
		for range 40 {
			now = now.Add(time.Duration(rnd.IntN(200)) * time.Second)
			in := GuardInput{Files: map[schema.GroupResource]int{}, History: executed, Held: held, Limits: limits, Now: now}
			for k := range alive {
				in.Files[k.GroupResource()]++
				if _, gone := absent[k]; !gone && rnd.IntN(30) == 0 {
					absent[k] = Reason(1 + rnd.IntN(3))
				}
			}
			for k, r := range absent {
				in.Candidates = append(in.Candidates, Candidate{k, r})
			}
			allowed, nowHeld := Guard(in)
			checkGuard(t, seed, in, allowed, nowHeld)
			held = nowHeld
			for _, k := range allowed {
				delete(alive, k)
				delete(absent, k)
				executed = append(executed, Deletion{k.GroupResource(), now})
			}
		}
	}
}

func checkGuard(t *testing.T, seed uint64, in GuardInput, allowed []kube.Key, held HeldSet) {
	t.Helper()
	if len(allowed)+len(held) != len(in.Candidates) {
		t.Fatalf("seed %d: %d allowed, %d held of %d", seed, len(allowed), len(held), len(in.Candidates))
	}
	recent := len(allowed)
	for _, d := range in.History {
		if in.Now.Sub(d.When) < GuardWindow {
			recent++
		}
	}
	if len(allowed) > 0 && recent > in.Limits.MaxDeleteObjects {
		t.Fatalf("seed %d: %d deletions in the window, limit %d", seed, recent, in.Limits.MaxDeleteObjects)
	}
	was := in.Held.Keys()
	for _, k := range allowed {
		if was[k] {
			t.Fatalf("seed %d: %v was held and released by itself", seed, k)
		}
	}
	for _, c := range in.Candidates {
		if c.Reason == ReasonKindGone && slices.Contains(allowed, c.Key) {
			t.Fatalf("seed %d: %v deleted though its kind is gone", seed, c.Key)
		}
	}
	slices.Reverse(in.Candidates)
	allowed2, held2 := Guard(in)
	if !slices.Equal(allowed, allowed2) || !slices.Equal(held, held2) {
		t.Fatalf("seed %d: the order of candidates changes the result", seed)
	}
	in.Held, in.Approved = held, held.Keys()
	if _, still := Guard(in); len(still) != 0 {
		t.Fatalf("seed %d: approved, yet held: %v", seed, still)
	}
}

func TestHeldSet(t *testing.T) {
	set := HeldSet{
		{Key: certificate("shop", "frontend-tls"), Reason: ReasonDeleted, Text: "51 objects deleted", Since: guardNow},
		{Key: kube.Key{Resource: "namespaces", Name: "shop"}, Reason: ReasonUnselected, Text: "unselected", Since: guardNow},
		{Key: kube.Key{Group: "rbac.authorization.k8s.io", Resource: "clusterroles", Name: "system:node\tx\ny /z"}, Reason: ReasonKindGone, Text: "tab\tand\nline", Since: guardNow},
		{Key: certificate("shop", strings.Repeat("a", 253)), Reason: ReasonAdopted, Text: "é", Since: guardNow},
	}
	text := set.Text()
	back, err := ParseHeldSet(text)
	if err != nil {
		t.Fatalf("ParseHeldSet: %v\n%s", err, text)
	}
	want := set.sorted()
	want[2].Text = "tab?and?line"
	if diff := cmp.Diff(want, back); diff != "" {
		t.Errorf("read back (-want +got):\n%s", diff)
	}
	const first = "certificates.cert-manager.io shop/frontend-tls\tdeleted\t2026-03-01T12:00:00Z\t51 objects deleted\n"
	if !strings.Contains(text, first) {
		t.Errorf("Text = %q, want a line %q", text, first)
	}

	digest := set.Digest()
	if len(digest) != 12 || digest != back.Digest() {
		t.Errorf("Digest = %q, read back %q, want the same 12 digits", digest, back.Digest())
	}
	slices.Reverse(set)
	set[0].Text, set[0].Since = "other", guardNow.Add(time.Hour)
	if set.Digest() != digest {
		t.Error("order, reason or time changes the digest")
	}
	if set[1:].Digest() == digest {
		t.Error("one object less does not change the digest")
	}
	if got := (HeldSet{}).Digest(); got != "" {
		t.Errorf("Digest of nothing = %q", got)
	}
}

func TestParseHeldSetRefuses(t *testing.T) {
	for _, line := range []string{
		"nonsense", "a b\tdeleted\t2026-03-01T12:00:00Z", "\tdeleted\t2026-03-01T12:00:00Z\t", "x.y A\tdeleted\t2026-03-01T12:00:00Z\t",
		"x.y /a\tdeleted\t2026-03-01T12:00:00Z\t", "x.y n/\tdeleted\t2026-03-01T12:00:00Z\t",
		"x.y a\tforgotten\t2026-03-01T12:00:00Z\t", "x.y a\tdeleted\tyesterday\t",
	} {
		set, err := ParseHeldSet("x.y ok\tdeleted\t2026-03-01T12:00:00Z\tfine\n" + line + "\n")
		if err == nil || !strings.HasPrefix(err.Error(), "line 2: ") {
			t.Errorf("ParseHeldSet(%q) = %v, %v, want an error on line 2", line, set, err)
		}
	}
}
