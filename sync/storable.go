package sync

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/crmirror/crmirror/gitstore"
	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/kube/threeway"
)

// unstorable says why git or base could not hold what becomes of a decided object; "" when
// they can.
//
// Invariant (promise 6): nothing is announced, written or pushed of an object that cannot be
// stored afterwards, and it stops no other. Test: TestSecretFiles.
func (j *judgement) unstorable() string {
	d := &j.decision
	if d.File != nil && (j.git == nil || !sameObject(d.File, j.git)) {
		if _, err := kube.Encode(&unstructured.Unstructured{Object: d.File}, j.shape); err != nil {
			return j.explain(err)
		}
	}
	if d.Cluster != nil && j.writes() {
		if _, err := kube.Encode(&unstructured.Unstructured{Object: d.Cluster}, j.shape); err != nil {
			return j.explain(err)
		}
	}
	for _, base := range []map[string]any{d.Base, d.Kept} {
		if base == nil || d.File != nil && sameObject(base, d.File) {
			continue
		}
		if _, err := kube.EncodeStored(base); err != nil {
			return j.explain(err)
		}
	}
	return ""
}

// explain says what is wrong with an object that has no encoding, for the person whose
// file it is.
func (j *judgement) explain(err error) string {
	var secret *kube.SecretError
	if !errors.As(err, &secret) {
		return err.Error()
	}
	text := fmt.Sprintf(".%s is in the clear, and no rule redacts or drops it; nothing of this file is applied: "+
		"take it out of the file, and put it into the cluster with kubectl", secret.Field)
	if _, here := j.git[secret.Field]; here {
		j.line = kube.Line(j.file, []any{secret.Field})
	}
	return text
}

// baseEdit is the edit that lets base say what is agreed about an object.
func (m *Mirror) baseEdit(key kube.Key, a agreement) (gitstore.Edit, error) {
	edit := gitstore.Edit{Path: PathOf(key), Delete: a.content == nil}
	if edit.Delete {
		return edit, nil
	}
	content, err := kube.EncodeStored(a.content)
	edit.Content = content
	return edit, err
}

// agreeOn lets base say what is agreed about an object. What has no encoding base then has no
// value for: that asks a person, guesses nothing, and stops no other object (TestUnstorableBase).
func (m *Mirror) agreeOn(key kube.Key, a agreement) []gitstore.Edit {
	edit, err := m.baseEdit(key, a)
	if err != nil {
		m.two.setUnknown(key, gaps{unknown: threeway.Unknown{Object: true}})
		return nil
	}
	m.two.setUnknown(key, a.gaps)
	return []gitstore.Edit{edit}
}
