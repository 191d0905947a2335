package kubetest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// lastLines is how much of a log an error shows.
const lastLines = 8

// openLog creates the log file of one of the processes. A file, not a pipe: the
// process writes on without us.
func (c *Cluster) openLog(name string) (*os.File, error) {
	file, err := os.OpenFile(c.logPath(name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("create log of %s: %w", name, err)
	}
	c.logs = append(c.logs, file)
	return file, nil
}

func (c *Cluster) logPath(name string) string {
	return filepath.Join(c.Dir, name+".log")
}

// lastWords returns the end of both logs: when a process does not come up, the
// reason stands there and nowhere else.
func (c *Cluster) lastWords() string {
	var out strings.Builder
	for _, name := range []string{etcdName, apiServerName} {
		content, err := os.ReadFile(c.logPath(name))
		if err != nil {
			continue
		}
		lines := bytes.Split(bytes.TrimSpace(content), []byte("\n"))
		if len(lines) > lastLines {
			lines = lines[len(lines)-lastLines:]
		}
		fmt.Fprintf(&out, "%s:\n%s\n", name, bytes.Join(lines, []byte("\n")))
	}
	return out.String()
}
