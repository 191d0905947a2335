package kubetest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// assetsEnv names a folder with other binaries of kube-apiserver and etcd, as
// in envtest.
const assetsEnv = "KUBEBUILDER_ASSETS"

// Root returns the root folder of the repository: the nearest folder, from the
// working directory upwards, that holds the go.mod of crmirror. A binary that
// runs elsewhere gets the root above its own executable (bin/crlab).
func Root() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find repository root: %w", err)
	}
	if root, ok := rootAbove(start); ok {
		return root, nil
	}
	executable, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find repository root: %w", err)
	}
	if root, ok := rootAbove(filepath.Dir(executable)); ok {
		return root, nil
	}
	return "", fmt.Errorf("find repository root: neither %s nor %s lies in a checkout of crmirror", start, executable)
}

// rootAbove walks up from dir to the folder that holds our sources. A nested
// module (testdata/controlplane) has no kube folder beside its go.mod.
func rootAbove(dir string) (string, bool) {
	for {
		if isFile(filepath.Join(dir, "go.mod")) && isFile(filepath.Join(dir, "kube", "key.go")) {
			return dir, true
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", false
		}
		dir = parent
	}
}

// assets returns the folder that holds the binaries kube-apiserver and etcd.
func assets() (string, error) {
	dir := os.Getenv(assetsEnv)
	if dir == "" {
		root, err := Root()
		if err != nil {
			return "", fmt.Errorf("find kube-apiserver and etcd: %w", err)
		}
		dir = filepath.Join(root, "bin")
	}
	for _, name := range []string{apiServerName, etcdName} {
		if path := filepath.Join(dir, name); !isFile(path) {
			return "", fmt.Errorf("find %s: no file %s; type \"make controlplane\", "+
				"or let %s name a folder that has it", name, path, assetsEnv)
		}
	}
	return dir, nil
}

// CorpusDir returns the folder of custom resources that tests and the lab load:
// the shared corpus beside the checkout where there is one, else the project's
// own. It holds one folder per project, with crds, crs and maybe refused below.
func CorpusDir() (string, error) {
	root, err := Root()
	if err != nil {
		return "", fmt.Errorf("find corpus: %w", err)
	}
	for _, dir := range []string{filepath.Join(root, "..", "shared", "corpus"), filepath.Join(root, "testdata", "corpus")} {
		info, err := os.Stat(dir)
		if err == nil && info.IsDir() {
			return filepath.Clean(dir), nil
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return "", fmt.Errorf("find corpus: %w", err)
		}
	}
	return "", fmt.Errorf("find corpus: no testdata/corpus in %s", root)
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
