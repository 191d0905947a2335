package main

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/crmirror/crmirror/kube"
)

// explanation is what explain tells. Its JSON form is a contract; it holds no values of fields.
type explanation struct {
	Object    string   `json:"object"`
	Selected  bool     `json:"selected"`
	Rule      string   `json:"rule"` // which one governs the object, or why none does, with its place
	File      string   `json:"file"` // from the repository's root; also where there is none yet
	InGit     bool     `json:"inGit"`
	InCluster bool     `json:"inCluster"`
	State     string   `json:"state"` // equal, differs, only in git, only in the cluster, unknown
	Differs   []string `json:"differs,omitempty"`
	Next      string   `json:"next,omitempty"`  // where to see more of a difference
	Owner     string   `json:"owner,omitempty"` // its controller
	// Held is why the deletion of its file waits for approval.
	Held string `json:"held,omitempty"`
	// NotStorable is why the object as it is now cannot be stored: it is quarantined.
	NotStorable string `json:"notStorable,omitempty"`
	// Broken is what is wrong with its file.
	Broken string        `json:"broken,omitempty"`
	Fields []fieldResult `json:"fields"`
}

// fieldResult is a field and what becomes of it in git.
type fieldResult struct {
	Field string `json:"field"`
	Kept  string `json:"kept"` // stored, redacted, dropped, status, server-set, repeated, owner-uid
	Why   string `json:"why"`
}

// States of an object.
const (
	stateEqual       = "equal"
	stateDiffers     = "differs"
	stateOnlyGit     = "only in git"
	stateOnlyCluster = "only in the cluster"
	stateUnknown     = "unknown"
)

// ruleText says which rule governs, with its place in the configuration.
func (o *subject) ruleText(v kube.Verdict) string {
	at := func(list string, i int) string { return o.cfg.Place(fmt.Sprintf("%s[%d]", list, i)) }
	text := v.String()
	switch {
	case v.Exclude >= 0:
		text += " (" + at("exclude", v.Exclude) + ")"
	case v.Select >= 0:
		text += " (" + at("select", v.Select) + ")"
	}
	gr := o.key.GroupResource().String()
	switch {
	case v.Selected():
	case gr == "customresourcedefinitions.apiextensions.k8s.io" && o.cfg.Include.CRDs:
		text += "; it is stored while a resource that it defines is (include.crds)"
	case gr == "namespaces" && o.cfg.Include.Namespaces:
		text += "; it is stored while it holds stored objects (include.namespaces)"
	}
	return text
}

// fieldResult says why a field is stored or is not.
func (o *subject) fieldResult(f kube.FieldFate, rule int) fieldResult {
	at := func(list string) string {
		path := fmt.Sprintf("select[%d].%s[%d]", rule, list, f.Rule)
		return path + " (" + o.cfg.Place(path) + ")"
	}
	why := ""
	switch f.Kept {
	case kube.KeptStored:
		why = "as it is"
	case kube.KeptDropped:
		why = "left out by " + at("drop")
	case kube.KeptRedacted:
		why = "a digest takes its place, by " + at("redact")
	case kube.KeptNoStatus:
		why = "left out: status is kept only by a rule with status: true"
	case kube.KeptServerSet:
		why = "left out: the server sets it"
	case kube.KeptRepeated:
		why = "left out: kubectl repeats the object in it, secrets included"
	case kube.KeptOwnerUID:
		why = "left out: it means nothing in another cluster"
	}
	return fieldResult{Field: f.Field, Kept: string(f.Kept), Why: why}
}

func (x *explanation) text() string {
	var out strings.Builder
	line := func(label, text string) {
		if text != "" {
			out.WriteString(clean("%-10s %s\n", label, text))
		}
	}
	line("Object:", x.Object)
	line("Rule:", x.Rule)
	line("Owner:", x.Owner)
	file := x.File
	if !x.InGit {
		file += " (not there)"
	}
	line("File:", file)
	line("State:", x.stateText())
	line("Next:", x.Next)
	if x.NotStorable != "" {
		line("Problem:", "as it is now it cannot be stored, and its file stays as it was: "+x.NotStorable)
	}
	if x.Broken != "" {
		line("Problem:", "its file cannot be read, and is neither written nor deleted: "+x.Broken)
	}
	if x.Held != "" {
		line("Held:", "the deletion of its file waits for approval: "+x.Held)
	}
	if len(x.Fields) == 0 {
		return out.String()
	}
	if !x.Selected {
		out.WriteString("\nIf a rule without drop, redact and status selected it:\n")
	} else {
		out.WriteString("\n")
	}
	tw := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprint(tw, "FIELD\tKEPT\tWHY\n")
	for _, f := range x.Fields {
		fmt.Fprint(tw, clean("%s\t%s\t%s\n", f.Field, f.Kept, f.Why))
	}
	_ = tw.Flush() // writes to memory
	return out.String()
}

func (x *explanation) stateText() string {
	switch x.State {
	case stateEqual:
		return "git has it as the cluster does"
	case stateDiffers:
		return "git and the cluster differ in " + strings.Join(x.Differs, ", ")
	case stateOnlyGit:
		return "only git has it"
	case stateOnlyCluster:
		return "only the cluster has it"
	}
	return "git and the cluster cannot be compared"
}
