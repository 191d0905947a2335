package kubetest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// document is one object of a manifest file.
type document struct {
	File  string // path as found
	Index int    // from 1, counting the objects of the file
	*unstructured.Unstructured
}

// readManifests reads all objects of the YAML and JSON files below the given
// files and folders, in a fixed order. What cannot be read as an object is
// returned as refused.
func readManifests(paths []string) ([]document, []Refusal, error) {
	var documents []document
	var refused []Refusal
	for _, path := range paths {
		err := filepath.WalkDir(path, func(file string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if ext := filepath.Ext(file); entry.IsDir() || ext != ".yaml" && ext != ".yml" && ext != ".json" {
				return nil
			}
			content, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			found, err := parseManifest(file, content)
			if err != nil {
				refused = append(refused, Refusal{File: file, Index: len(found) + 1, Err: err})
			}
			documents = append(documents, found...)
			return nil
		})
		if err != nil {
			return nil, nil, fmt.Errorf("read manifests: %w", err)
		}
	}
	return documents, refused, nil
}

// parseManifest returns the objects of one file, those of a List one by one. On
// an error it also returns the objects before it.
func parseManifest(file string, content []byte) ([]document, error) {
	var documents []document
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content)))
	for {
		text, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return documents, nil
		}
		if err != nil {
			return documents, fmt.Errorf("read document: %w", err)
		}
		data, err := yaml.YAMLToJSON(text)
		if err != nil {
			return documents, fmt.Errorf("read document: %w", err)
		}
		if bytes.Equal(bytes.TrimSpace(data), []byte("null")) {
			continue // only comments
		}
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON(data); err != nil {
			return documents, fmt.Errorf("read document: %w", err)
		}
		objects := []*unstructured.Unstructured{object}
		if object.IsList() && object.GetKind() == "List" {
			list, err := object.ToList()
			if err != nil {
				return documents, fmt.Errorf("read list: %w", err)
			}
			objects = objects[:0]
			for i := range list.Items {
				objects = append(objects, &list.Items[i])
			}
		}
		for _, object := range objects {
			documents = append(documents, document{File: file, Index: len(documents) + 1, Unstructured: object})
		}
	}
}
