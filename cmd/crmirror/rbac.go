package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/crmirror/crmirror/cmd/internal/config"
	"github.com/crmirror/crmirror/cmd/internal/rbac"
	"github.com/crmirror/crmirror/kube"
)

// rbacFlags are the flags that are rbac's own.
type rbacFlags struct {
	*configFlags
	name, namespace string
	wildcard        bool
	output          string
}

func (a *app) rbacCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rbac --config FILE",
		Short: "Print the rights that the agent needs for a configuration, and no others",
		Long: `Print the manifests of a ServiceAccount with the rights that crmirror run needs for this configuration and its mode: reading the
selected resources, their CRDs and the Namespaces; in mode two-way also writing them (deleting only if apply.prune is on) and Events; with leader election its Lease.
They are Roles in the namespaces that the rules name, if all rules of a resource do; else a ClusterRole.

RBAC does not know "every custom resource". Where the rules say "*" or "*.group", the cluster is asked for its CRDs, and each resource
is listed by name: run it again when CRDs are added. Until then the agent names those that it may not read, and goes on with the
others. With --wildcard no cluster is asked, and the role has "*" for the group, or for everything, Secrets included: it fits later
CRDs too, but allows more than is needed.`,
		Example: `  crmirror rbac --config crmirror.yaml | kubectl apply -f -
  crmirror rbac --config crmirror.yaml --namespace backup --name crmirror-prod
  crmirror rbac --config crmirror.yaml --wildcard -o json`,
		Args: cobra.NoArgs,
	}
	f := &rbacFlags{configFlags: a.addConfigFlags(cmd)}
	flags := cmd.Flags()
	flags.StringVar(&f.name, "name", "crmirror", "`NAME` of the ServiceAccount, the roles and the bindings")
	flags.StringVarP(&f.namespace, "namespace", "n", "crmirror", "`NAMESPACE` that the agent runs in")
	flags.BoolVar(&f.wildcard, "wildcard", false, `grant "*" where the rules say "*", and ask no cluster`)
	flags.StringVarP(&f.output, "output", "o", "yaml", "print as `FORMAT`: yaml or json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return a.rbac(cmd.Context(), f) }
	return cmd
}

func (a *app) rbac(ctx context.Context, f *rbacFlags) error {
	if err := f.check(a.lookup("CRMIRROR_CONFIG")); err != nil {
		return err
	}
	cfg, err := a.loadElsewhere(f.configFlags)
	if err != nil {
		return err
	}
	selection := cfg.Selection()
	rules, err := selection.Compile()
	if err != nil {
		return err
	}
	options := rbac.Options{
		Name: f.name, Namespace: f.namespace, Rules: rules, Wildcard: f.wildcard,
		TwoWay: cfg.Mode == config.ModeTwoWay, Prune: cfg.Apply.Prune, Namespaces: cfg.Include.Namespaces,
	}
	if cfg.LeaderElection.Enabled {
		options.Lease = types.NamespacedName{Namespace: cfg.LeaderElection.Namespace, Name: cfg.LeaseName()}
	}
	if !f.wildcard && rbac.Needs(rules) {
		if options.Custom, err = a.customResources(ctx, cfg); err != nil {
			return fmt.Errorf("ask for the custom resources that the rules select by \"*\": %w; --wildcard asks no cluster", err)
		}
	}
	text, err := render(rbac.Manifests(options), f.output, headOf(cfg, rules, f.wildcard))
	if err != nil {
		return err
	}
	_, err = a.env.stdout.Write(text)
	return err
}

func (f *rbacFlags) check(variable string) error {
	switch {
	case f.file == "" && variable == "":
		return usagef("rbac needs a configuration: crmirror rbac --config FILE")
	case f.output != "yaml" && f.output != "json":
		return usagef("unknown output format %q; there are: yaml, json", f.output)
	}
	for _, flag := range []struct{ name, value string }{{"--name", f.name}, {"--namespace", f.namespace}} {
		if problems := validation.IsDNS1123Label(flag.value); len(problems) > 0 {
			return usagef("%s %q: %s", flag.name, flag.value, problems[0])
		}
	}
	return nil
}

// customResources lists what CRDs the cluster has.
func (a *app) customResources(ctx context.Context, cfg *config.Config) ([]rbac.Resource, error) {
	conn, err := a.connection(cfg)
	if err != nil {
		return nil, err
	}
	conn.Timeout = cfg.Timeouts.Kubernetes
	client, err := dynamic.NewForConfig(conn)
	if err != nil {
		return nil, err
	}
	crds := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	var out []rbac.Resource
	for page := (metav1.ListOptions{Limit: 100}); ; {
		list, err := crds.List(ctx, page)
		if err != nil {
			return nil, fmt.Errorf("list CRDs: %w", err)
		}
		for _, crd := range list.Items {
			scope, _, _ := unstructured.NestedString(crd.Object, "spec", "scope")
			out = append(out, rbac.Resource{GroupResource: schema.ParseGroupResource(crd.GetName()), Namespaced: scope == "Namespaced"})
		}
		if page.Continue = list.GetContinue(); page.Continue == "" {
			return out, nil
		}
	}
}

// headOf is the comment above the manifests.
func headOf(cfg *config.Config, rules *kube.Rules, wildcard bool) string {
	lines := []string{fmt.Sprintf("What crmirror needs for cluster %s in mode %s, by crmirror rbac.", cfg.Cluster, cfg.Mode)}
	switch _, all := rules.Wildcards(); {
	case !rbac.Needs(rules):
	case !wildcard:
		lines = append(lines, `The rules say "*": these are the custom resources of today. Run it again when CRDs are added.`)
	case all:
		lines = append(lines, `The rules say "*": of everything, Secrets included. Without --wildcard it lists the custom resources by name.`)
	default:
		lines = append(lines, `The rules say "*" of a group: all of its resources, now and later. Without --wildcard they are listed by name.`)
	}
	return "# " + strings.Join(lines, "\n# ") + "\n"
}

// render writes objects as YAML documents below a comment, or as one JSON list.
func render(objects []runtime.Object, format, comment string) ([]byte, error) {
	if format == "json" {
		list := map[string]any{"apiVersion": "v1", "kind": "List", "items": objects}
		text, err := json.MarshalIndent(list, "", "  ")
		return append(text, '\n'), err
	}
	out := []byte(comment)
	var errs []error
	for _, object := range objects {
		text, err := yaml.Marshal(object)
		out, errs = append(append(out, "---\n"...), text...), append(errs, err)
	}
	return out, errors.Join(errs...)
}
