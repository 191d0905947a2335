package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/crmirror/crmirror/cmd/internal/config"
	"github.com/crmirror/crmirror/gitstore"
	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/sync"
)

// logRequest is what log is asked.
type logRequest struct {
	resource, name string // of one object
	deleted        bool   // instead: what was deleted
	resources      []string
	namespace      string
	at, since      string
	diff           bool
	format         outputFormat
	again          string // what means the same repository on another command line
}

func (a *app) logCommand() *cobra.Command {
	var req logRequest
	var output string
	cmd := &cobra.Command{
		Use:   "log (RESOURCE NAME | --deleted)",
		Short: "The history of one object, or what was deleted and when",
		Long: `Tell from git what became of one object, newest first: when, in which commit, by whom, and which fields changed. Or, with
--deleted, which objects were deleted. Of what is gone, the last commit that has it is named, with the command that
restores it from there. No cluster is contacted.

RESOURCE is written as plural.group, as CRDs are named; the plural alone does where one resource in git has it.
--at takes a commit, a tag or a branch, or a date: ` + dateForms + `.
--since takes a date.`,
		Example: `  crmirror log certificates.cert-manager.io web -n shop --repo ./backup
  crmirror log certificates web -n shop --diff --config crmirror.yaml
  crmirror log --deleted --resources '*.cert-manager.io' --since 2026-11-01 --repo ./backup`,
		Args: func(_ *cobra.Command, args []string) error { return req.checkArgs(args) },
	}
	flags := a.addConfigFlags(cmd)
	cmd.Flags().StringVarP(&req.namespace, "namespace", "n", "", "`NAMESPACE` of the object; with --deleted, of those to list")
	cmd.Flags().StringVar(&req.at, "at", "", "begin at `REV`: a commit, tag, branch or date; default: the newest commit")
	cmd.Flags().BoolVar(&req.diff, "diff", false, "show what changed, as unified diffs")
	cmd.Flags().BoolVar(&req.deleted, "deleted", false, "list what was deleted")
	cmd.Flags().StringSliceVar(&req.resources, "resources", nil, "with --deleted, `RESOURCES` to list: names, *.GROUP, or built-ins by name")
	cmd.Flags().StringVar(&req.since, "since", "", "with --deleted, list only what was deleted since `DATE`")
	cmd.Flags().StringVarP(&output, "output", "o", "", "report as `FORMAT`: json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		if req.format, err = parseOutput(output); err != nil {
			return err
		}
		cfg, err := a.load(flags, config.Override{Path: "log.level", Value: "warn", Source: "the default of log", Default: true})
		if err != nil {
			return err
		}
		req.again = flags.again(cfg)
		return a.log(cmd.Context(), cfg, &req)
	}
	return cmd
}

// checkArgs takes the object from the arguments, and refuses what does not go together.
func (r *logRequest) checkArgs(args []string) error {
	switch {
	case r.deleted && len(args) > 0:
		return errors.New("--deleted lists objects; leave RESOURCE and NAME out, or use --resources and -n")
	case r.deleted && r.diff:
		return errors.New("--diff is for one object: give RESOURCE and NAME")
	case r.deleted:
		return nil
	case len(args) != 2:
		return fmt.Errorf("give RESOURCE and NAME of an object, or --deleted; there are %d arguments", len(args))
	case len(r.resources) > 0 || r.since != "":
		return errors.New("--resources and --since go with --deleted")
	}
	r.resource, r.name = args[0], args[1]
	return nil
}

func (a *app) log(ctx context.Context, cfg *config.Config, req *logRequest) (err error) {
	s := &session{cfg: withOwnCache(cfg, "log"), log: newLogger(cfg.Log, a.env.stderr), shared: true, whole: true}
	if err := a.openStore(ctx, s); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.store.Close()) }()
	at, _, err := s.commitAt(ctx, req.at)
	if err != nil {
		return err
	}
	if req.deleted {
		return a.logDeleted(ctx, s, req, at)
	}
	return a.logObject(ctx, s, req, at)
}

func (a *app) logObject(ctx context.Context, s *session, req *logRequest, at gitstore.Hash) error {
	key, err := req.key(ctx, s.store, at)
	if err != nil {
		return err
	}
	versions, short := sync.ObjectLog(ctx, s.store, at, key)
	if len(versions) == 0 {
		if short != nil {
			return short
		}
		return req.notFound(ctx, s, at, key)
	}
	log := newObjectLog(key, s.store.FullPath(sync.PathOf(key)), versions, req)
	if req.format == outputJSON {
		return errors.Join(writeJSON(a.env.stdout, log), short)
	}
	return errors.Join(log.write(a.env.stdout, req.diff, isTerminal(a.env.stdout)), short)
}

func isTerminal(w io.Writer) bool {
	if out, ok := w.(*watched); ok {
		w = out.Writer
	}
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// key is the object that is asked about.
func (r *logRequest) key(ctx context.Context, store *gitstore.Store, at gitstore.Hash) (kube.Key, error) {
	gr := schema.ParseGroupResource(r.resource)
	key := kube.Key{Group: gr.Group, Resource: gr.Resource, Namespace: r.namespace, Name: r.name}
	if gr.Group != "" {
		return key, nil
	}
	files, err := store.FilesAt(ctx, at)
	if err != nil {
		return key, err
	}
	groups := map[string]bool{}
	for path := range files {
		if k, isCut, err := sync.KeyOf(path); err == nil && k.Resource == gr.Resource && (!isCut || k.Group != "") {
			groups[k.Group] = true
		}
	}
	if groups[""] || len(groups) == 0 {
		return key, nil // of the core group, whose resources have no other name
	}
	names := slices.Sorted(maps.Keys(groups))
	if len(names) > 1 {
		return key, usagef("%q may be %s.%s or %s.%s; write one of them", r.resource, r.resource, names[0], r.resource, names[1])
	}
	key.Group = names[0]
	return key, nil
}

// notFound says where the object may be instead.
func (r *logRequest) notFound(ctx context.Context, s *session, at gitstore.Hash, key kube.Key) error {
	next := "what was deleted is listed by: crmirror log --deleted" + r.again
	files, err := s.store.FilesAt(ctx, at)
	if err != nil {
		return err
	}
	for _, path := range slices.Sorted(maps.Keys(files)) {
		k, _, err := sync.KeyOf(path)
		if err == nil && k.Namespace != "" && k.Resource == key.Resource && k.Group == key.Group && k.Name == key.Name {
			next = fmt.Sprintf("there is one in namespace %s: add -n %s", k.Namespace, k.Namespace)
			break
		}
	}
	return fmt.Errorf("find %s: no commit of %s up to %.10s has it; %s", key, s.place(), at, next)
}

func (a *app) logDeleted(ctx context.Context, s *session, req *logRequest, at gitstore.Hash) error {
	match, err := req.matcher()
	if err != nil {
		return err
	}
	var since time.Time
	if req.since != "" {
		if since, _, err = parseDate(req.since, time.Now()); err != nil {
			return usagef("--since: %w", err)
		}
	}
	gone, short := sync.DeletedLog(ctx, s.store, at, since, match)
	if len(gone) == 0 && short != nil {
		return short
	}
	log := newDeletedLog(gone, req)
	if req.format == outputJSON {
		return errors.Join(writeJSON(a.env.stdout, log), short)
	}
	_, err = io.WriteString(a.env.stdout, log.text())
	return errors.Join(err, short)
}

// matcher tells which keys are asked about.
func (r *logRequest) matcher() (func(kube.Key) bool, error) {
	inNamespace := func(k kube.Key) bool { return r.namespace == "" || k.Namespace == r.namespace }
	if len(r.resources) == 0 {
		return inNamespace, nil
	}
	selection := kube.Selection{Select: []kube.Rule{{Resources: r.resources}}}
	rules, err := selection.Compile()
	if err != nil {
		return nil, usagef("--resources: %s", strings.ReplaceAll(err.Error(), "select[0].", ""))
	}
	return func(k kube.Key) bool {
		_, ok := rules.Governs(&metav1.ObjectMeta{Namespace: k.Namespace, Name: k.Name}, k.GroupResource())
		return ok && inNamespace(k)
	}, nil
}
