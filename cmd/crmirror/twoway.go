package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/crmirror/crmirror/cmd/internal/config"
	"github.com/crmirror/crmirror/kube/apply"
	"github.com/crmirror/crmirror/sync"
)

// hands write to the cluster for mode two-way.
type hands struct {
	*apply.Writer
	*apply.Schemas
}

// applyRate is how many requests a second the two-way part may make; the server has
// its own fairness.
const applyRate = 100

// newHands connects; of a dry run, the server stores nothing.
func newHands(conn *rest.Config, timeout time.Duration, dryRun bool) (hands, error) {
	conn = rest.CopyConfig(conn)
	conn.QPS, conn.Burst = applyRate, 2*applyRate
	schemas, err := apply.NewSchemas(conn, timeout)
	if err != nil {
		return hands{}, err
	}
	writer, err := apply.NewWriter(conn, schemas, apply.Options{Timeout: timeout, DryRun: dryRun})
	return hands{writer, schemas}, err
}

// twoWay says how git's changes reach the cluster; nil in mode mirror.
func (s *session) twoWay(conn *rest.Config) (*sync.TwoWay, error) {
	if s.cfg.Mode != config.ModeTwoWay {
		return nil, nil
	}
	h, err := newHands(conn, s.cfg.Timeouts.Kubernetes, s.dry != writes)
	if err != nil {
		return nil, err
	}
	return &sync.TwoWay{
		Hands: h, Prune: s.cfg.Apply.Prune, Respect: s.cfg.Apply.RespectManagers,
		DryRun: s.dry != writes, Trial: s.dry == onlyAsks,
		RemoveFinalizers: s.cfg.Apply.RemoveFinalizers,
	}, nil
}

func (a *app) applyCommand() *cobra.Command {
	var output string
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "apply --config FILE",
		Short: "Carry git's changes to the cluster and the cluster's to git, once",
		Long: `Run one two-way cycle. What people changed in git since both sides last agreed is written to the cluster, field by field, with
server-side apply; what changed in the cluster is committed. What both changed is a conflict: it is written on neither
side and listed, with the commands that settle it.

The configuration says mode: two-way. The first run has nothing agreed to go by: what is equal is agreed, what differs
is listed, nothing is overwritten.

Exit code: 0 both sides agree; 3 they do but for what is listed; 1 error; 2 wrong usage or config.`,
		Example: `  crmirror apply --config crmirror.yaml --dry-run
  crmirror apply --config crmirror.yaml`,
		Args: cobra.NoArgs,
	}
	flags := a.addConfigFlags(cmd)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only tell what would be done, and what the server would refuse")
	cmd.Flags().StringVarP(&output, "output", "o", "", "report as `FORMAT`: json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		format, err := parseOutput(output)
		if err != nil {
			return err
		}
		cfg, err := a.loadTwoWay(flags, "apply")
		if err != nil {
			return err
		}
		dry := writes
		if dryRun {
			cfg, dry = withOwnCache(cfg, "apply"), onlyAsks
		}
		return a.oneCycle(cmd.Context(), cfg, dry, func(s *session, report *sync.Report) error {
			if err := newApplyResult(report, s, dryRun, flags.again(cfg)).write(a.env.stdout, format); err != nil {
				return fmt.Errorf("write the report: %w", err)
			}
			if !report.Clean() {
				return errDifferences
			}
			return nil
		})
	}
	return cmd
}

// loadTwoWay loads the configuration of a command that needs mode two-way.
func (a *app) loadTwoWay(flags *configFlags, command string) (*config.Config, error) {
	cfg, err := a.load(flags, config.Override{Path: "log.level", Value: "warn", Source: "the default of " + command, Default: true})
	if err != nil {
		return nil, err
	}
	if cfg.Mode != config.ModeTwoWay {
		return nil, usagef("%s works in mode two-way; write mode: two-way into the configuration", command)
	}
	return cfg, nil
}

// oneCycle lists everything, runs one cycle and hands over its report.
func (a *app) oneCycle(ctx context.Context, cfg *config.Config, dry dryness, then func(*session, *sync.Report) error) (err error) {
	s, err := a.openAs(ctx, cfg, 0, dry)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.store.Close()) }()
	if err := s.mirror.Prepare(ctx); err != nil {
		return err
	}
	report, err := s.once(ctx, a.env.stderr)
	if err != nil {
		return err
	}
	return then(s, report)
}

func (a *app) conflictsCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "conflicts --config FILE",
		Short: "List what git and the cluster both changed",
		Long: `List the fields and objects that git and the cluster have differently and that crmirror writes on neither side, with each side's
value, who owns the field in the cluster, and the commands that settle it. It changes nothing, and may be run beside the agent.
What else it sees not to be applied is listed after them, on the standard error with -o json. It does not ask the server what
that would refuse; crmirror apply --dry-run does.

Exit code: 0 there are none; 3 there are some, or changes that are not applied; 1 error; 2 wrong usage or config.`,
		Example: `  crmirror conflicts --config crmirror.yaml
  crmirror conflicts --config crmirror.yaml -o json`,
		Args: cobra.NoArgs,
	}
	flags := a.addConfigFlags(cmd)
	cmd.Flags().StringVarP(&output, "output", "o", "", "report as `FORMAT`: json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		format, err := parseOutput(output)
		if err != nil {
			return err
		}
		cfg, err := a.loadTwoWay(flags, "conflicts")
		if err != nil {
			return err
		}
		return a.oneCycle(cmd.Context(), withOwnCache(cfg, "conflicts"), onlyLooks, func(_ *session, report *sync.Report) error {
			if err := writeConflicts(a.env.stdout, a.env.stderr, format, report, flags.again(cfg)); err != nil {
				return err
			}
			if len(report.Conflicts)+len(report.Refusals) > 0 {
				return errDifferences
			}
			return nil
		})
	}
	return cmd
}

func (a *app) resolveCommand() *cobra.Command {
	var r resolveFlags
	cmd := &cobra.Command{
		Use:   "resolve (RESOURCE NAME | --all) --take git|cluster",
		Short: "Settle conflicts with one side's value",
		Long: `Settle conflicts. --take cluster commits the cluster's value to git. --take git records that the cluster's value has been seen,
so that git's is applied over it: by the agent at its next look at the remote, or by the next crmirror apply.

RESOURCE is written as plural.group, certificates.cert-manager.io; the plural alone does where one mirrored
resource has it. Without --field all conflicts of the object are settled; -n says which where objects of that name have some in several namespaces. --all settles those of all objects, and can be
narrowed with -n and -l; what cannot be settled is listed, and the exit code is 3 then.`,
		Example: `  crmirror resolve certificates.cert-manager.io web -n shop --field .spec.duration --take git --config crmirror.yaml
  crmirror resolve --all -n shop --take cluster --config crmirror.yaml`,
		Args: cobra.MaximumNArgs(2),
	}
	flags := a.addConfigFlags(cmd)
	r.add(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		resolution, err := r.parse(args)
		if err != nil {
			return err
		}
		cfg, err := a.loadTwoWay(flags, "resolve")
		if err != nil {
			return err
		}
		return a.oneCycle(cmd.Context(), withOwnCache(cfg, "resolve"), onlyLooks, func(s *session, report *sync.Report) error {
			if resolution.Resource, err = fullName(resolution.Resource, report.Resources()); err != nil {
				return err
			}
			settled, left, err := s.mirror.Resolve(cmd.Context(), resolution, time.Now())
			if err != nil {
				return err
			}
			if len(settled)+len(left) == 0 {
				return noMatch(resolution, report)
			}
			return a.tellSettled(settled, left, resolution.Take)
		})
	}
	return cmd
}

// resolveFlags say which conflicts are settled, and how.
type resolveFlags struct {
	take, namespace, field, selector string
	all                              bool
}

func (r *resolveFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&r.take, "take", "", "whose value: `git` or cluster; required")
	cmd.Flags().StringVarP(&r.namespace, "namespace", "n", "", "`NAMESPACE` of the object, or of all that are settled")
	cmd.Flags().StringVar(&r.field, "field", "", "`PATH` of one field, as crmirror conflicts writes it")
	cmd.Flags().StringVarP(&r.selector, "selector", "l", "", "with --all: only objects whose labels match `SELECTOR`")
	cmd.Flags().BoolVar(&r.all, "all", false, "settle the conflicts of all objects")
}

func (r *resolveFlags) parse(args []string) (sync.Resolution, error) {
	out := sync.Resolution{Take: sync.Side(r.take), Namespace: r.namespace, Field: r.field}
	switch {
	case out.Take != sync.TakeGit && out.Take != sync.TakeCluster:
		return out, usagef("say whose value is taken: --take git or --take cluster")
	case r.all && len(args) > 0:
		return out, usagef("give an object or --all, not both")
	case !r.all && len(args) != 2:
		return out, usagef("name an object, RESOURCE NAME, or give --all; crmirror conflicts lists them")
	case !r.all && r.selector != "":
		return out, usagef("-l goes with --all")
	}
	if len(args) == 2 {
		gr := schema.ParseGroupResource(args[0])
		out.Resource, out.Name = gr.String(), args[1]
	}
	if r.selector != "" {
		selector, err := labels.Parse(r.selector)
		if err != nil {
			return out, usagef("-l: %w", err)
		}
		out.Labels = selector
	}
	return out, nil
}

// fullName completes a plural that stands alone, where one mirrored resource has it.
func fullName(resource string, mirrored []sync.ResourceReport) (string, error) {
	var found []string
	for _, x := range mirrored {
		if x.Resource == resource {
			return resource, nil
		}
		if strings.HasPrefix(x.Resource, resource+".") && !strings.Contains(resource, ".") {
			found = append(found, x.Resource)
		}
	}
	switch len(found) {
	case 0:
		return resource, nil
	case 1:
		return found[0], nil
	}
	return "", usagef("%q may be %s; write one of them", resource, strings.Join(found, " or "))
}

// noMatch says why a resolution found nothing to settle.
func noMatch(r sync.Resolution, report *sync.Report) error {
	var fields []string
	for _, c := range report.Conflicts {
		if c.Key.GroupResource().String() == r.Resource && c.Key.Name == r.Name && (r.Namespace == "" || r.Namespace == c.Key.Namespace) {
			fields = append(fields, cmp.Or(c.Field, "(the object)"))
		}
	}
	known := slices.ContainsFunc(report.Resources(), func(x sync.ResourceReport) bool { return x.Resource == r.Resource })
	switch {
	case len(fields) > 0:
		return fmt.Errorf("resolve: no conflict of %s %s is of %s; it has: %s", r.Resource, r.Name, r.Field, strings.Join(fields, ", "))
	case r.Resource != "" && !known:
		return fmt.Errorf("resolve: %s is no resource that is mirrored; write it as plural.group, as crmirror conflicts does", r.Resource)
	case r.Name != "":
		return fmt.Errorf("resolve: %s %s has no conflict; see: crmirror conflicts", r.Resource, r.Name)
	}
	return errors.New("resolve: no conflict matches; see: crmirror conflicts")
}

func (a *app) tellSettled(settled []sync.Conflict, left []sync.Unsettled, take sync.Side) error {
	for _, c := range settled {
		fmt.Fprint(a.env.stdout, clean("%s\n", strings.TrimSpace(c.Key.String()+" "+c.Field)))
	}
	then := "The cluster's values are committed to git."
	if take == sync.TakeGit {
		then = "The agent applies git's values at its next look at the remote; without an agent: crmirror apply."
	}
	if len(settled) == 0 {
		then = ""
	}
	_, err := fmt.Fprint(a.env.stdout, clean("%s\n", strings.TrimSpace(counted(len(settled), "conflict")+" settled. "+then)))
	if len(left) == 0 || err != nil {
		return err
	}
	fmt.Fprint(a.env.stdout, clean("\nNot settled:\n"))
	for _, u := range left {
		fmt.Fprint(a.env.stdout, clean("  %s: %v\n", strings.TrimSpace(u.Key.String()+" "+u.Field), u.Err))
	}
	return errDifferences
}
