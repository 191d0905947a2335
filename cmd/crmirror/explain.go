package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/crmirror/crmirror/cmd/internal/config"
	"github.com/crmirror/crmirror/gitstore"
	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/kube/apply"
	"github.com/crmirror/crmirror/kube/bulk"
	"github.com/crmirror/crmirror/sync"
)

func (a *app) explainCommand() *cobra.Command {
	var output, namespace string
	cmd := &cobra.Command{
		Use:   "explain RESOURCE NAME",
		Short: "Which rule governs an object, what of it is stored, what is not, and why",
		Long: `Tell of one object which rule governs it, and where that rule stands; which file it lies in, and whether git has it as the
cluster does; and of each of its fields whether it is stored, and why not. The object may be gone from the cluster, or not be in git
yet. No value of a field is shown, nothing is written, and it may be run beside the agent.

RESOURCE is written as plural.group, as CRDs are named; the plural alone does where one resource has it. The rules are those of
the configuration; without one, every custom resource is taken.

Exit code: 0 it was told; 1 error; 2 wrong usage or config.`,
		Example: `  crmirror explain certificates.cert-manager.io web -n shop --config crmirror.yaml
  crmirror explain certificates web -n shop --repo ./backup -o json`,
		Args: cobra.ExactArgs(2),
	}
	flags := a.addConfigFlags(cmd)
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "", "`NAMESPACE` of the object")
	cmd.Flags().StringVarP(&output, "output", "o", "", "report as `FORMAT`: json")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		format, err := parseOutput(output)
		if err != nil {
			return err
		}
		quiet := config.Override{Path: "log.level", Value: "warn", Source: "the default of explain", Default: true}
		cfg, err := a.loadBy(config.LoadElsewhere, flags, []config.Override{quiet}) // no redacted value is compared
		if err != nil {
			return err
		}
		x, err := a.explainObject(cmd.Context(), cfg, args[0], namespace, args[1])
		if err != nil {
			return err
		}
		if format == outputJSON {
			return writeJSON(a.env.stdout, x)
		}
		_, err = io.WriteString(a.env.stdout, x.text())
		return err
	}
	return cmd
}

// subject is an object that is explained: what cluster and git have of it.
type subject struct {
	*session
	key    kube.Key
	custom bool // its resource has a CRD
	live   *unstructured.Unstructured
	file   []byte // its file at the branch's head; nil if there is none
	git    *unstructured.Unstructured
	broken error // why the file cannot be read
}

func (a *app) explainObject(ctx context.Context, cfg *config.Config, resource, namespace, name string) (x *explanation, err error) {
	s := &session{cfg: withOwnCache(cfg, "explain"), log: newLogger(cfg.Log, a.env.stderr), shared: true}
	conn, err := a.connection(cfg)
	if err != nil {
		return nil, err
	}
	client, err := bulk.New(conn, bulk.Options{Timeout: cfg.Timeouts.Kubernetes})
	if err != nil {
		return nil, err
	}
	if err := a.openStore(ctx, s); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.store.Close()) }()
	head, _, err := s.headNow(ctx)
	if err != nil {
		return nil, err
	}
	files := map[string]gitstore.TreeFile{}
	if !head.IsZero() {
		if files, err = s.store.FilesAt(ctx, head); err != nil {
			return nil, err
		}
	}
	served, err := client.Discover(ctx)
	if err != nil {
		return nil, err
	}
	o := &subject{session: s, key: kube.Key{Namespace: namespace, Name: name}}
	if err := o.findResource(resource, served, files); err != nil {
		return nil, err
	}
	if err := o.readFile(ctx, files); err != nil {
		return nil, err
	}
	if err := o.readLive(ctx, client, served); err != nil {
		return nil, err
	}
	if o.live == nil && o.file == nil {
		return nil, fmt.Errorf("explain %s: neither the cluster nor %s has it; what was deleted is listed by: crmirror log --deleted%s",
			o.key, s.place(), a.again)
	}
	return o.explain(ctx, a.again)
}

// headNow is what the branch has now; zero before its first commit.
func (s *session) headNow(ctx context.Context) (gitstore.Hash, gitstore.CommitInfo, error) {
	if !s.cfg.Repository.IsPath() {
		if err := s.store.Fetch(ctx); err != nil {
			return gitstore.Hash{}, gitstore.CommitInfo{}, err
		}
	}
	head := s.store.Head()
	if head.IsZero() {
		return head, gitstore.CommitInfo{}, nil
	}
	info, err := s.store.Info(head)
	return head, info, err
}

// findResource completes the key from what the server serves and what git has files of.
func (o *subject) findResource(text string, served *bulk.Served, files map[string]gitstore.TreeFile) error {
	known := map[schema.GroupResource]bool{}
	for gr := range served.Kinds {
		known[gr] = true
	}
	for path := range files {
		if k, isCut, err := sync.KeyOf(path); err == nil && !isCut {
			known[k.GroupResource()] = true
		}
	}
	asked := schema.ParseGroupResource(text)
	var found, names []string
	for gr := range known {
		names = append(names, gr.String())
		if gr.Resource == asked.Resource && asked.Group == "" {
			found = append(found, gr.String())
			names = append(names, gr.Resource)
		}
	}
	slices.Sort(found)
	slices.Sort(names)
	switch {
	case known[asked]: // also a plural alone, of the core group
	case len(found) == 1:
		asked = schema.ParseGroupResource(found[0])
	case len(found) > 1:
		return usagef("%q may be %s; write one of them", text, strings.Join(found, " or "))
	default:
		return usagef("%q is no resource that the cluster serves or that git has files of%s; they are listed by: kubectl api-resources",
			text, nearResource(text, names))
	}
	o.key.Group, o.key.Resource = asked.Group, asked.Resource
	kind, ok := served.Resource(asked)
	switch {
	case ok && kind.Namespaced && o.key.Namespace == "":
		return usagef("%s lie in namespaces: add -n NAMESPACE", asked)
	case ok && !kind.Namespaced && o.key.Namespace != "":
		return usagef("%s lie in no namespace: leave -n out", asked)
	}
	return nil
}

// nearResource names what was meant: the nearest full name, or what has the nearest plural.
func nearResource(text string, names []string) string {
	if near := config.Suggest(text, names); near != "" {
		return near
	}
	full := map[string]string{}
	for _, name := range names {
		full[schema.ParseGroupResource(name).Resource] = name
	}
	near := config.Suggest(schema.ParseGroupResource(text).Resource, slices.Sorted(maps.Keys(full)))
	for plural, name := range full {
		if near == config.Suggest(plural, []string{plural}) && near != "" {
			return fmt.Sprintf(" (did you mean %q?)", name)
		}
	}
	return near
}

func (o *subject) readFile(ctx context.Context, files map[string]gitstore.TreeFile) (err error) {
	file, ok := files[sync.PathOf(o.key)]
	if !ok {
		return nil
	}
	if o.file, err = o.store.Read(ctx, file.Blob); err != nil {
		return fmt.Errorf("read %s: %w", o.path(), err)
	}
	if o.git, o.broken = kube.Decode(o.file); o.broken != nil {
		o.git = nil
	}
	return nil
}

// readLive reads the object at the version that its file has, to compare them.
func (o *subject) readLive(ctx context.Context, client *bulk.Client, served *bulk.Served) error {
	o.custom = kube.LooksCustom(o.key.Group)
	kind, ok := served.Resource(o.key.GroupResource())
	if !ok {
		return nil
	}
	at := kind.Preferred()
	if o.git != nil {
		if version, ok := kind.Version(o.git.GroupVersionKind().Version); ok {
			at.Version = version.Name
		}
	}
	crds := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	if _, err := client.Get(ctx, crds, "", o.key.GroupResource().String()); err == nil {
		o.custom = true
	} else if errors.Is(err, apply.ErrNotFound) {
		o.custom = false
	} // else the group's name tells
	live, err := client.Get(ctx, at, o.key.Namespace, o.key.Name)
	if errors.Is(err, apply.ErrNotFound) {
		return nil
	}
	o.live = live
	return err
}

func (o *subject) path() string { return o.store.FullPath(sync.PathOf(o.key)) }

// object is what rules are asked about: the live object, else what git has.
func (o *subject) object() *unstructured.Unstructured {
	if o.live != nil {
		return o.live
	}
	if o.git != nil {
		return o.git
	}
	empty := &unstructured.Unstructured{Object: map[string]any{}}
	empty.SetNamespace(o.key.Namespace)
	empty.SetName(o.key.Name)
	return empty
}

// explain puts together what is to be told.
func (o *subject) explain(ctx context.Context, again string) (*explanation, error) {
	selection := o.cfg.Selection()
	rules, err := selection.Compile()
	if err != nil {
		return nil, err
	}
	obj := o.object()
	x := &explanation{Object: o.key.String(), File: o.path(), InGit: o.file != nil, InCluster: o.live != nil}
	if owner := metav1.GetControllerOfNoCopy(obj); owner != nil {
		x.Owner = owner.Kind + " " + owner.Name
	}
	resource, _ := rules.Resource(o.key.GroupResource(), o.custom)
	verdict := resource.Judge(obj)
	x.Rule, x.Selected = o.ruleText(verdict), verdict.Selected()
	shape := &kube.Shape{}
	if x.Selected {
		shape = &verdict.Rule.Shape
	}
	for _, fate := range shape.Fates(obj.Object) {
		x.Fields = append(x.Fields, o.fieldResult(fate, verdict.Select))
	}
	if o.live != nil {
		if _, err := kube.Encode(o.live, shape); err != nil {
			x.NotStorable = err.Error()
		}
	}
	if o.broken != nil {
		x.Broken = o.broken.Error()
	}
	if x.State, x.Differs, err = o.state(shape); err != nil {
		return nil, err
	}
	if x.State == stateDiffers && o.cfg.Mode == config.ModeTwoWay {
		x.Next = "whether that is a conflict: crmirror conflicts" + again
	}
	why, held, err := sync.WhyHeld(ctx, o.store, o.refs, o.key)
	if held {
		x.Held = why
	}
	return x, err
}

// comparable is a shape without what cannot be compared here: the key of redacted values is the agent's.
func comparable(shape *kube.Shape) *kube.Shape {
	return &kube.Shape{Status: shape.Status, Drop: append(slices.Clone(shape.Drop), shape.Redact...)}
}

// state compares cluster and git, and names the fields that differ.
func (o *subject) state(shape *kube.Shape) (state string, differs []string, err error) {
	switch {
	case o.live == nil:
		return stateOnlyGit, nil, nil
	case o.file == nil:
		return stateOnlyCluster, nil, nil
	case o.git == nil:
		return stateUnknown, nil, nil
	}
	var texts [2][]byte
	for i, obj := range []*unstructured.Unstructured{o.git, o.live} {
		if texts[i], err = kube.Encode(obj, comparable(shape)); err != nil {
			return stateUnknown, nil, nil // told as NotStorable
		}
	}
	if kube.Equal(texts[0], texts[1]) {
		return stateEqual, nil, nil
	}
	differs, err = kube.DiffPaths(texts[0], texts[1], listed)
	return stateDiffers, differs, err
}
