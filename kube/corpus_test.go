package kube

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	yamlutil "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// TestCorpus encodes every document of the corpora offline, CRDs included, and proves that
// nothing is lost but what Encode names and that the second encoding is identical. Files
// beyond maxCorpusFile, CRDs of half a megabyte and more, are left to the long suite.
func TestCorpus(t *testing.T) {
	own := filepath.Join("..", "testdata", "corpus")
	for _, root := range []string{own, filepath.Join("..", "..", "shared", "corpus")} {
		if _, err := os.Stat(root); errors.Is(err, fs.ErrNotExist) && root != own {
			t.Logf("no %s: only the project's own corpus is tested", root)
			continue
		}
		objects := 0
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || filepath.Ext(path) != ".yaml" {
				return err
			}
			content, err := os.ReadFile(path)
			if err != nil || len(content) > maxCorpusFile {
				return err
			}
			docs := documents(t, content)
			for i, obj := range docs {
				objects++
				t.Run(fmt.Sprintf("%s:%d", strings.TrimPrefix(path, root), i), func(t *testing.T) {
					content, err := Encode(obj, nil)
					if err != nil {
						t.Fatal(err)
					}
					checkLossless(t, obj, content)
				})
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if objects == 0 {
			t.Errorf("no object in %s", root)
		}
		t.Logf("%s: %d objects", root, objects)
	}
}

// documents reads a file as kubectl sends it: the objects in it that are of no core
// kind. Those without a name get one.
func documents(t *testing.T, content []byte) []*unstructured.Unstructured {
	t.Helper()
	var out []*unstructured.Unstructured
	reader := yamlutil.NewYAMLReader(bufio.NewReader(bytes.NewReader(content)))
	for {
		doc, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		json, err := yaml.YAMLToJSON(doc)
		if err != nil {
			t.Fatal(err)
		}
		obj := &unstructured.Unstructured{}
		if err := obj.UnmarshalJSON(json); err != nil {
			continue
		}
		if obj.GetName() == "" {
			obj.SetName("unnamed")
		}
		if obj.GroupVersionKind().Group == "" {
			continue
		}
		out = append(out, obj)
	}
}
