package restore

import (
	"encoding/json"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/crmirror/crmirror/gitstore"
	"github.com/crmirror/crmirror/kube"
)

// Verb is what a plan does about one object.
type Verb string

// The verbs.
const (
	Create    Verb = "create"    // the cluster lacks it
	Update    Verb = "update"    // it differs, and Options.Existing says to make it equal; or only its owner was made anew
	Unchanged Verb = "unchanged" // it equals git
	Skip      Verb = "skip"      // it differs and stays as it is, or it would run again
	Conflict  Verb = "conflict"  // a tool that would set it back owns what differs; see Options.Force
	Blocked   Verb = "blocked"   // it cannot be written as things are; Reason says why and what to do
)

// Phase is when an object is written. Phases follow each other.
type Phase int

// The phases.
const (
	CRDs Phase = iota
	Namespaces
	Objects
)

// Existing says what becomes of objects that the cluster has and that differ.
type Existing string

// The values of Existing; the zero value means ExistingSkip.
const (
	ExistingSkip   Existing = "skip"
	ExistingUpdate Existing = "update"
)

// Options say what is to be restored, and how. The zero Options are everything that
// the commit has, created where it is missing.
type Options struct {
	// Resources are names ("certificates.cert-manager.io"), "*.group" or "*"; empty means all.
	// A resource that runs when created is restored only if it is named in full.
	Resources []string
	// Namespaces are names or globs, as git has them; empty means all and cluster-scoped objects.
	Namespaces []string
	// Names are names or globs of objects; empty means all.
	Names []string
	// Selector matches labels as git has them; nil means all.
	Selector labels.Selector
	// MapNamespaces maps namespaces of git to those of the cluster.
	MapNamespaces map[string]string
	// Existing says what becomes of objects that differ.
	Existing Existing
	// Force lets Existing update fields that a tool owns which would set them back.
	Force bool
	// StripFinalizers leaves metadata.finalizers out.
	StripFinalizers bool
	// StripTracking leaves out the labels and annotations by which other tools claim objects; see Tracking.
	StripTracking bool
	// ReleaseOwnership gives up the fields of what was written: a second write for each object.
	ReleaseOwnership bool
	// Runs are the resources that run when created; nil means DefaultRuns.
	Runs []string
	// Respect are the field managers that would set a field back.
	Respect []string
	// RedactKey, if known, lets redacted values be compared.
	RedactKey []byte
}

// Action is what a plan does about one object. Its JSON form is a contract and holds
// no values of fields.
type Action struct {
	Verb   Verb   `json:"verb"`
	Phase  Phase  `json:"-"`
	Reason string `json:"reason,omitempty"` // of skip, conflict and blocked: why, and what to do

	Key  kube.Key      `json:"key"`  // in the cluster, after MapNamespaces
	From kube.Key      `json:"from"` // in git
	Path string        `json:"path"` // of the file, below the mirrored path
	Blob gitstore.Hash `json:"-"`    // "blob" in JSON

	// Resource is what the object is written at: group, version and plural. The version can
	// be another than the file's where the server does not serve that.
	Resource schema.GroupVersionResource `json:"-"` // "apiVersion" in JSON

	// UID and ResourceVersion are those of the live object that this was decided on; empty
	// where there is none.
	UID             string `json:"uid,omitempty"`
	ResourceVersion string `json:"resourceVersion,omitempty"`

	// Changes are the fields that differ, of update, skip and conflict.
	Changes []Change `json:"changes,omitempty"`
	// Notes are what a person should know though it does not keep the object from being
	// written: an owner left out, a namespace's name inside the spec.
	Notes []string `json:"notes,omitempty"`

	// Held says that a restore's manager owns fields of an unchanged object: it would have to be
	// released, if that is asked for.
	Held bool `json:"-"`

	// relinks are the live references to owners that were made anew.
	relinks []relink
	// foreseen says that the live object was compared as it will be once its CRD is updated, lists as wholes.
	foreseen bool
	// Behind says that the object is skipped only since an owner is: it was asked for, and would not come.
	Behind bool `json:"-"`

	// Owners are what the object's ownerReferences name, in their order; of objects that
	// are to be written.
	Owners []Owner `json:"-"`
}

// Owner is what an ownerReference names.
type Owner struct {
	Key kube.Key // in the cluster; zero if nothing says which resource its kind is
	UID string   // of the live object; "" if the cluster lacks it
	// Dropped owners are neither in git nor in the cluster: the object is written without the
	// reference, and a note says so.
	Dropped bool
}

// Change is a field that differs between git and the cluster.
type Change struct {
	Field string `json:"field"`           // as kubectl explains it: spec.ports[name="http"].port
	Kind  string `json:"kind"`            // "only in git", "only in the cluster" or "differs"
	Cause string `json:"cause,omitempty"` // likely: "defaulted by the server", or the manager that set it
	// Owners are the field managers that own the field in the cluster.
	Owners []string `json:"owners,omitempty"`
	// Git and Cluster are the values as text, cut to a size; empty where the rules redact them.
	Git     string `json:"-"`
	Cluster string `json:"-"`

	path fieldpath.Path
}

// Finding is something that a person should look at before or after a restore.
type Finding struct {
	What string `json:"what"` // file (with line), resource or object
	Text string `json:"text"` // what is wrong, and what to do
	// Fatal findings keep what was asked for from being written: Objects, where they are known.
	Fatal   bool       `json:"fatal"`
	Objects []kube.Key `json:"objects,omitempty"`

	// of is what a file's finding is about, as far as its path tells: without a name if that is cut.
	of kube.Key
}

// Commit is the hash of a commit, a text in JSON.
type Commit gitstore.Hash

// String is the hash in hex.
func (c Commit) String() string { return gitstore.Hash(c).String() }

// MarshalText is String.
func (c Commit) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// Plan is what a restore would do: every selected object of the commit, in order of
// phases and keys.
type Plan struct {
	Commit     Commit    `json:"commit"`
	Time       time.Time `json:"time"` // of the commit
	ClusterUID string    `json:"clusterUID"`
	Actions    []Action  `json:"actions"`
	Findings   []Finding `json:"findings,omitempty"`
}

// MarshalJSON writes hashes as text, and the version that the object is written at.
func (a Action) MarshalJSON() ([]byte, error) {
	type plain Action
	apiVersion := ""
	if a.Resource.Version != "" {
		apiVersion = a.Resource.GroupVersion().String()
	}
	return json.Marshal(struct {
		plain
		Blob       string `json:"blob"`
		APIVersion string `json:"apiVersion,omitempty"`
	}{plain(a), a.Blob.String(), apiVersion})
}

// Complete tells whether all that was asked for would be there, as git has it; see Report.Complete.
func (p *Plan) Complete() bool {
	for i := range p.Actions {
		switch a := &p.Actions[i]; a.Verb {
		case Conflict, Blocked:
			return false
		case Skip:
			if a.UID != "" || a.Behind {
				return false
			}
		}
	}
	return !slices.ContainsFunc(p.Findings, isFatal)
}

// Totals counts the actions by verb.
func (p *Plan) Totals() map[Verb]int {
	totals := map[Verb]int{}
	for i := range p.Actions {
		totals[p.Actions[i].Verb]++
	}
	return totals
}
