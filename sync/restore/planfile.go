package restore

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/crmirror/crmirror/kube"
)

const (
	planVersion = "crmirror.dev/v1alpha1"
	planKind    = "RestorePlan"
)

// SavedPlan is a plan as a file holds it: what was to be done about which state of which object.
// It has no values of fields, and no key.
type SavedPlan struct {
	APIVersion string        `json:"apiVersion"`
	Kind       string        `json:"kind"`
	Repository string        `json:"repository"` // as it was given, without credentials
	Path       string        `json:"path"`       // the mirrored path in it
	Commit     string        `json:"commit"`
	Time       time.Time     `json:"time"` // of the commit
	ClusterUID string        `json:"clusterUID"`
	Options    SavedOptions  `json:"options"`
	Objects    []SavedObject `json:"objects"`
}

// SavedOptions are Options but for the key.
type SavedOptions struct {
	Resources       []string          `json:"resources,omitempty"`
	Namespaces      []string          `json:"namespaces,omitempty"`
	Names           []string          `json:"names,omitempty"`
	Selector        string            `json:"selector,omitempty"`
	MapNamespaces   map[string]string `json:"mapNamespaces,omitempty"`
	Existing        Existing          `json:"existing,omitempty"`
	Force           bool              `json:"force,omitempty"`
	StripFinalizers bool              `json:"stripFinalizers,omitempty"`
	StripTracking   bool              `json:"stripTracking,omitempty"`
	Runs            []string          `json:"runs"` // null: the default list of the version that reads it
	Respect         []string          `json:"respect,omitempty"`
}

// SavedObject is one Action.
type SavedObject struct {
	Verb            Verb   `json:"verb"`
	Reason          string `json:"reason,omitempty"`
	Group           string `json:"group,omitempty"`
	Version         string `json:"version,omitempty"`
	Resource        string `json:"resource"`
	Namespace       string `json:"namespace,omitempty"` // in the cluster
	Name            string `json:"name"`
	Path            string `json:"path"`
	Blob            string `json:"blob"`
	UID             string `json:"uid,omitempty"`
	ResourceVersion string `json:"resourceVersion,omitempty"`
}

// key is the object's key in the cluster.
func (o *SavedObject) key() kube.Key {
	return kube.Key{Group: o.Group, Resource: o.Resource, Namespace: o.Namespace, Name: o.Name}
}

// Save writes a plan that was made with opts, for LoadPlan and Pin. Repository and path say where
// the commit is; the repository's address must have no credentials in it.
func (p *Plan) Save(w io.Writer, repository, path string, opts *Options) error {
	saved := SavedPlan{
		APIVersion: planVersion, Kind: planKind, Repository: repository, Path: path,
		Commit: p.Commit.String(), Time: p.Time.UTC(), ClusterUID: p.ClusterUID,
		Options: SavedOptions{
			Resources: opts.Resources, Namespaces: opts.Namespaces, Names: opts.Names, MapNamespaces: opts.MapNamespaces,
			Existing: opts.Existing, Force: opts.Force, StripFinalizers: opts.StripFinalizers, StripTracking: opts.StripTracking,
			Runs: opts.Runs, Respect: opts.Respect,
		},
	}
	if opts.Selector != nil {
		saved.Options.Selector = opts.Selector.String()
	}
	for i := range p.Actions {
		a := &p.Actions[i]
		saved.Objects = append(saved.Objects, SavedObject{
			Verb: a.Verb, Reason: a.Reason,
			Group: a.Key.Group, Version: a.Resource.Version, Resource: a.Key.Resource, Namespace: a.Key.Namespace, Name: a.Key.Name,
			Path: a.Path, Blob: a.Blob.String(), UID: a.UID, ResourceVersion: a.ResourceVersion,
		})
	}
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(&saved); err != nil {
		return fmt.Errorf("save plan: %w", err)
	}
	return nil
}

// LoadPlan reads a saved plan. It is strict: a plan of which a part is not understood is an error.
func LoadPlan(r io.Reader) (*SavedPlan, error) {
	saved := &SavedPlan{}
	dec := json.NewDecoder(r)
	dec.DisallowUnknownFields()
	if err := dec.Decode(saved); err != nil {
		return nil, fmt.Errorf("read plan: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("read plan: something follows it")
	}
	switch {
	case saved.Kind != planKind:
		return nil, fmt.Errorf("read plan: kind is %q, want %s", saved.Kind, planKind)
	case saved.APIVersion != planVersion:
		return nil, fmt.Errorf("read plan: it is of %q, this version reads %s: make it anew", saved.APIVersion, planVersion)
	case saved.Commit == "" || saved.ClusterUID == "":
		return nil, errors.New("read plan: commit or clusterUID is missing")
	}
	if _, err := saved.MadeWith(nil); err != nil {
		return nil, fmt.Errorf("read plan: %w", err)
	}
	return saved, nil
}

// MadeWith returns the options that the plan was made with, and a redaction key for them.
func (s *SavedPlan) MadeWith(redactKey []byte) (*Options, error) {
	o := &s.Options
	opts := &Options{
		Resources: o.Resources, Namespaces: o.Namespaces, Names: o.Names, MapNamespaces: o.MapNamespaces,
		Existing: o.Existing, Force: o.Force, StripFinalizers: o.StripFinalizers, StripTracking: o.StripTracking,
		Runs: o.Runs, Respect: o.Respect, RedactKey: redactKey,
	}
	if o.Selector != "" {
		selector, err := labels.Parse(o.Selector)
		if err != nil {
			return nil, fmt.Errorf("selector: %w", err)
		}
		opts.Selector = selector
	}
	return opts, opts.Check()
}

// Pin holds a plan that was made anew, with MadeWith of the saved one, to the saved one: what would
// be done otherwise than a person saw it is blocked. What is as git has it by now needs nothing any more,
// so a plan that was carried out in part can be carried out again.
//
// Invariant: after Pin, what is written is what the saved plan says, to the objects that it was
// decided on (TestPin).
func Pin(plan *Plan, saved *SavedPlan) error {
	switch {
	case plan.ClusterUID != saved.ClusterUID:
		return fmt.Errorf("the plan was made for the cluster with uid %s, and this one has %s: make a new plan", saved.ClusterUID, plan.ClusterUID)
	case plan.Commit.String() != saved.Commit:
		return fmt.Errorf("the plan is of commit %s, not of %s", saved.Commit, plan.Commit)
	}
	was := make(map[kube.Key]*SavedObject, len(saved.Objects))
	for i := range saved.Objects {
		was[saved.Objects[i].key()] = &saved.Objects[i]
	}
	for i := range plan.Actions {
		a := &plan.Actions[i]
		if a.Verb != Create && a.Verb != Update {
			continue
		}
		if reason := moved(a, was[a.Key]); reason != "" {
			a.Verb, a.Reason = Blocked, "moved since the plan: "+reason+"; make a new plan"
		}
	}
	return nil
}

// moved says in what an action is another one than the saved.
func moved(a *Action, was *SavedObject) string {
	switch {
	case was == nil:
		return "it was not in it"
	case was.Verb != a.Verb:
		return fmt.Sprintf("it said %s, now it is %s", was.Verb, a.Verb)
	case was.UID != a.UID || was.ResourceVersion != a.ResourceVersion:
		return "the object changed in the cluster"
	case was.Blob != a.Blob.String() || was.Path != a.Path:
		return "git has it otherwise"
	case a.Resource != (schema.GroupVersionResource{Group: was.Group, Version: was.Version, Resource: was.Resource}):
		return "it would be written at another version"
	}
	return ""
}
