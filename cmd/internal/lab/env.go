package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Kubeconfig returns the path of the kubeconfig of cluster i, from 0.
func (l *Lab) Kubeconfig(i int) string { return filepath.Join(l.Dir, kubeconfigName(i)) }

// RemoteDir returns the path of the bare repository that the git server serves.
func (l *Lab) RemoteDir() string { return filepath.Join(l.Dir, "git", repository) }

// RemoteHTTP returns the repository's address over HTTP. The password is the
// token, the user name any.
func (l *Lab) RemoteHTTP() string { return l.HTTP.URL(repository) }

// RemoteSSH returns the repository's address over ssh.
func (l *Lab) RemoteSSH() string { return l.SSH.URL(repository) }

// EnvFile returns the path of the file that a shell sources to work with the lab.
func (l *Lab) EnvFile() string { return filepath.Join(l.Dir, "env") }

func (l *Lab) tokenFile() string { return filepath.Join(l.Dir, "token") }

// Variable is an environment variable of the lab.
type Variable struct{ Name, Value string }

// Env returns what the file env says.
func (l *Lab) Env() []Variable {
	variables := []Variable{
		{"KUBECONFIG", l.Kubeconfig(0)},
		{"REMOTE_HTTP", l.RemoteHTTP()},
		{"REMOTE_TOKEN_FILE", l.tokenFile()},
		{"REMOTE_SSH", l.RemoteSSH()},
		{"SSH_KEY", l.SSH.KeyFile},
		{"KNOWN_HOSTS", l.SSH.KnownHostsFile},
		{"REMOTE_DIR", l.RemoteDir()},
	}
	for i := 1; i < len(l.Clusters); i++ {
		variables = append(variables, Variable{fmt.Sprintf("KUBECONFIG_%d", i+1), l.Kubeconfig(i)})
	}
	return variables
}

// writeEnv writes the file env. It appears whole: a waiting script may take its
// existence for "ready".
func (l *Lab) writeEnv() error {
	temporary := filepath.Join(l.Dir, "git", "env.new")
	if err := os.WriteFile(temporary, []byte(formatEnv(l.Env())), 0o644); err != nil {
		return fmt.Errorf("write env: %w", err)
	}
	if err := os.Rename(temporary, l.EnvFile()); err != nil {
		return fmt.Errorf("write env: %w", err)
	}
	return nil
}

var plainWord = regexp.MustCompile(`^[A-Za-z0-9_./:@%+,-]+$`)

// formatEnv writes assignments, one a line, that other programs can read too,
// and a last line that exports them in a shell.
func formatEnv(variables []Variable) string {
	var out, names strings.Builder
	for _, variable := range variables {
		value := variable.Value
		if !plainWord.MatchString(value) {
			value = "'" + strings.ReplaceAll(value, "'", `'\''`) + "'"
		}
		fmt.Fprintf(&out, "%s=%s\n", variable.Name, value)
		names.WriteString(" " + variable.Name)
	}
	return out.String() + "export" + names.String() + "\n"
}
