// Render prints the manifests that kustomize or Helm make of a folder, as their
// own commands do, for the tests of the folder deploy:
//
//	render kustomize FOLDER
//	render helm CHART NAME NAMESPACE [VALUES…]
//
// VALUES are files; a later one wins. The manifests go to standard output as YAML
// documents, in an order that depends on nothing but the input; an error, such as
// a value that the chart's schema refuses, to standard error, with exit code 1.
package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

func main() {
	if err := render(os.Stdout, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func render(w io.Writer, args []string) error {
	switch {
	case len(args) == 2 && args[0] == "kustomize":
		return kustomize(w, args[1])
	case len(args) >= 4 && args[0] == "helm":
		return helm(w, args[1], args[2], args[3], args[4:])
	}
	return errors.New("usage: render kustomize FOLDER | render helm CHART NAME NAMESPACE [VALUES…]")
}

func kustomize(w io.Writer, folder string) error {
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder)
	if err != nil {
		return fmt.Errorf("kustomize %s: %w", folder, err)
	}
	content, err := resources.AsYaml()
	if err != nil {
		return fmt.Errorf("kustomize %s: %w", folder, err)
	}
	_, err = w.Write(content)
	return err
}

func helm(w io.Writer, folder, name, namespace string, files []string) error {
	chart, err := loader.Load(folder)
	if err != nil {
		return fmt.Errorf("load chart %s: %w", folder, err)
	}
	given := map[string]any{}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		var values map[string]any
		if err := yaml.Unmarshal(content, &values); err != nil {
			return fmt.Errorf("read values %s: %w", file, err)
		}
		given = util.CoalesceTables(values, given)
	}
	release := common.ReleaseOptions{Name: name, Namespace: namespace, Revision: 1, IsInstall: true}
	values, err := util.ToRenderValues(chart, given, release, common.DefaultCapabilities)
	if err != nil {
		return fmt.Errorf("values of chart %s: %w", folder, err)
	}
	rendered, err := engine.Render(chart, values)
	if err != nil {
		return fmt.Errorf("render chart %s: %w", folder, err)
	}
	for _, file := range slices.Sorted(maps.Keys(rendered)) {
		if path.Ext(file) != ".yaml" || strings.TrimSpace(rendered[file]) == "" {
			continue // NOTES.txt, or a template that is switched off
		}
		if _, err := fmt.Fprintf(w, "---\n# %s\n%s\n", file, rendered[file]); err != nil {
			return err
		}
	}
	return nil
}
