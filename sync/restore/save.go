package restore

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/crmirror/crmirror/kube/canon"
)

// Saver keeps live objects in a file, before they are made other ones: YAML documents, whole but for
// managedFields, with secrets in the clear. The file is made when the first object comes,
// readable for its owner only. It is safe for concurrent use.
type Saver struct {
	path string

	writing sync.Mutex // of written, and of what is written to file
	file    *os.File
	written int64 // bytes

	syncing sync.Mutex
	synced  int64
}

// NewSaver returns a Saver that makes a file; one that is there already is not touched.
func NewSaver(path string) *Saver { return &Saver{path: path} }

// Path is that of the file, and "" as long as there is none.
func (s *Saver) Path() string {
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.file == nil {
		return ""
	}
	return s.path
}

// Save returns when the object is on disk.
func (s *Saver) Save(live *unstructured.Unstructured) error {
	live = live.DeepCopy()
	live.SetManagedFields(nil)
	content, err := canon.Append([]byte("---\n"), live.Object)
	if err == nil {
		err = s.append(content)
	}
	if err != nil {
		return fmt.Errorf("save %s %s to %s: %w", live.GetKind(), live.GetName(), s.path, err)
	}
	return nil
}

func (s *Saver) append(content []byte) error {
	end, err := s.write(content)
	if err != nil {
		return err
	}
	s.syncing.Lock()
	defer s.syncing.Unlock()
	if s.synced >= end {
		return nil // somebody's Sync had this in it
	}
	s.writing.Lock()
	now := s.written
	s.writing.Unlock()
	if err := s.file.Sync(); err != nil {
		return err
	}
	s.synced = now
	return nil
}

// write returns where the content ends. What was written in part is taken back, so that what
// follows can be read.
func (s *Saver) write(content []byte) (int64, error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.file == nil {
		file, err := os.OpenFile(s.path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(err, fs.ErrExist) {
			return 0, errors.New("there is such a file; name another one with --save-existing")
		}
		if err != nil {
			return 0, err
		}
		s.file = file
	}
	if _, err := s.file.Write(content); err != nil {
		_, seek := s.file.Seek(s.written, io.SeekStart)
		return 0, errors.Join(err, s.file.Truncate(s.written), seek)
	}
	s.written += int64(len(content))
	return s.written, nil
}

// Close closes the file.
func (s *Saver) Close() error {
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.file == nil {
		return nil
	}
	return s.file.Close()
}
