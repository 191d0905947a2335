package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/sync"
)

// bothWays turns on mode two-way and lets a person change a file.
func (d *demo) bothWays(ctx context.Context) error {
	config, err := os.ReadFile(d.config)
	if err != nil {
		return fmt.Errorf("read configuration: %w", err)
	}
	const more = "mode: two-way\napply: {poll: 1s}\n"
	if err := os.WriteFile(d.config, append(config, more...), 0o600); err != nil {
		return fmt.Errorf("write configuration: %w", err)
	}
	d.say("   Two lines more in the configuration:\n\n   %s", strings.ReplaceAll(more, "\n", "\n   "))
	if err := d.startAgent(); err != nil {
		return err
	}
	if err := d.person(ctx, "Give demo-copy to the payments team", "payments"); err != nil {
		return err
	}
	d.say("   Ada merges a change of %s: the label team=payments", d.twin.key)
	if err := d.wait(ctx, "payments"); err != nil {
		return err
	}
	d.say("   … and the cluster has it, with everything else as it was. The field's owner there tells where it came from:\n")
	return d.owners(ctx)
}

// conflict lets both sides change one field while the agent rests, and settles it.
func (d *demo) conflict(ctx context.Context) error {
	if err := d.stopAgent(); err != nil {
		return err
	}
	if err := d.person(ctx, "Give demo-copy to the search team", "search"); err != nil {
		return err
	}
	patch := []byte(`{"metadata":{"labels":{"team":"billing"}}}`)
	if _, err := d.client.Resource(d.twin.resource).Namespace(d.twin.key.Namespace).
		Patch(ctx, d.twin.key.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "grace"}); err != nil {
		return fmt.Errorf("patch %s: %w", d.twin.key, err)
	}
	d.say("   While the agent rests, Ada merges team=search, and Grace sets team=billing in the cluster.\n")
	if err := d.startAgent(); err != nil {
		return err
	}
	d.say("   $ crmirror conflicts --config crmirror.yaml")
	out, err := d.crmirror(ctx, 3, "conflicts")
	if err != nil {
		return err
	}
	d.say("   %s", strings.ReplaceAll(strings.TrimSpace(out), "\n", "\n   "))
	d.say("\n   $ crmirror resolve %s %s -n %s --take git --config crmirror.yaml", d.twin.key.GroupResource(), d.twin.key.Name, d.twin.key.Namespace)
	out, err = d.crmirror(ctx, 0, "resolve", d.twin.key.GroupResource().String(), d.twin.key.Name, "-n", d.twin.key.Namespace, "--take", "git")
	if err != nil {
		return err
	}
	d.say("   %s", strings.ReplaceAll(strings.TrimSpace(out), "\n", "\n   "))
	if err := d.wait(ctx, "search"); err != nil {
		return err
	}
	d.say("   … and the cluster has team=search.")
	return nil
}

// crmirror runs a command beside the agent; it has to end with that exit code.
func (d *demo) crmirror(ctx context.Context, want int, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, d.binary, append(args, "--config", d.config, "--kubeconfig", d.lab.Kubeconfig(d.cluster),
		"--cache-dir", filepath.Join(d.lab.Dir, "git", "cache"))...)
	var errOut strings.Builder
	cmd.Stderr = &errOut
	out, err := cmd.Output()
	var exit *exec.ExitError
	if code := 0; err != nil {
		if !errors.As(err, &exit) {
			return "", fmt.Errorf("crmirror %s: %w", args[0], err)
		}
		if code = exit.ExitCode(); code == want {
			return string(out), nil
		}
		return "", fmt.Errorf("crmirror %s: %w\n%s", args[0], err, errOut.String())
	}
	if want != 0 {
		return "", fmt.Errorf("crmirror %s found nothing:\n%s", args[0], out)
	}
	return string(out), nil
}

// person commits a team label for the twin, from a clone.
func (d *demo) person(ctx context.Context, message, team string) error {
	desk, err := os.MkdirTemp(filepath.Join(d.lab.Dir, "git"), "desk-")
	if err != nil {
		return err
	}
	file := filepath.Join(demoPath, filepath.FromSlash(sync.PathOf(d.twin.key)))
	git := func(args ...string) error {
		cmd := exec.CommandContext(ctx, "git", append([]string{"-C", desk, "-c", "user.name=Ada", "-c", "user.email=ada@example.com"}, args...)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("git %s: %w\n%s", args[0], err, out)
		}
		return nil
	}
	if err := git("clone", "--quiet", d.lab.RemoteDir(), "."); err != nil {
		return err
	}
	content, err := os.ReadFile(filepath.Join(desk, file))
	if err != nil {
		return err
	}
	obj, err := kube.Decode(content)
	if err != nil {
		return err
	}
	labels := obj.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels["team"] = team
	obj.SetLabels(labels)
	if content, err = kube.Encode(obj, &kube.Shape{}); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(desk, file), content, 0o600); err != nil {
		return err
	}
	if err := git("commit", "--quiet", "--all", "--message", message); err != nil {
		return err
	}
	return git("push", "--quiet", "origin", "HEAD")
}

// wait waits until the twin has a team label in the cluster.
func (d *demo) wait(ctx context.Context, team string) error {
	ctx, cancel := context.WithTimeout(ctx, demoPatience)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		obj, err := d.get(ctx)
		if err == nil && obj.GetLabels()["team"] == team {
			return nil
		}
		select {
		case <-tick.C:
		case err := <-d.done:
			d.agent = nil
			return fmt.Errorf("crmirror ended: %w\n%s", err, d.log.String())
		case <-ctx.Done():
			return fmt.Errorf("wait for team=%s in the cluster: %w\n%s", team, errors.Join(ctx.Err(), err), d.log.String())
		}
	}
}

func (d *demo) get(ctx context.Context) (*unstructured.Unstructured, error) {
	return d.client.Resource(d.twin.resource).Namespace(d.twin.key.Namespace).Get(ctx, d.twin.key.Name, metav1.GetOptions{})
}

// owners prints who manages what of the twin.
func (d *demo) owners(ctx context.Context) error {
	obj, err := d.get(ctx)
	if err != nil {
		return fmt.Errorf("get %s: %w", d.twin.key, err)
	}
	for _, m := range obj.GetManagedFields() {
		fields := "much"
		if m.FieldsV1 != nil && len(m.FieldsV1.String()) < 200 {
			fields = string(m.FieldsV1.GetRawBytes())
		}
		d.say("   %s (%s): %s", m.Manager, m.Operation, fields)
	}
	return nil
}
