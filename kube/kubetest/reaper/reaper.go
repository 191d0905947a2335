// Package reaper keeps child processes and temporary folders from outliving the
// process that made them, however that process ends.
//
// A Reaper is a small shell process in a session of its own. It holds the read
// end of a pipe whose write end only our process has; when we end, by exit,
// panic or SIGKILL, the kernel closes the pipe, and the shell kills what was
// started under it and removes the folders.
package reaper

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// started is a shell function that prints when a process started, in some unit,
// and nothing if it has ended. A process keeps the time when it becomes another
// program; one that got the id of an ended process has another time.
const started = `
started() {
	if { read -r line <"/proc/$1/stat"; } 2>/dev/null; then
		set -- ${line##*) }
		[ "$1" = Z ] || echo "${20}"
	elif [ ! -d /proc/self ]; then
		ps -p "$1" -o lstart=
	fi
}
`

// script waits for the end of its standard input, then kills every process that
// left its pid in $1/pids, and removes the folders named by its arguments.
//
// Invariant: a process started under the reaper is killed even if its parent
// dies before it has announced itself. It announces first and looks for the file
// "open" second (see Wrap); we take "open" away first and look for announcements
// second. Whichever comes first, one of the two sees the other.
// TestChildDoesNotSurviveItsParent, TestWrapperOfAClosedReaperRefuses.
//
// Invariant: no other process is killed. A process id is used again sooner or
// later, so the start time must be the announced one.
// TestReusedProcessIDIsLeftAlone.
const script = started + `
trap '' HUP INT TERM
cat >/dev/null
rm -f "$1/open"
tries=0
while [ $tries -lt 50 ]; do
	alive=
	for file in "$1"/pids/*; do
		[ -e "$file" ] || continue
		pid="${file##*/}"
		now="$(started "$pid")"
		if [ -n "$now" ] && [ "$now" = "$(tail -n +2 "$file")" ]; then
			kill -9 "$pid" && alive=1
		else
			rm -f "$file"
		fi
	done
	[ -n "$alive" ] || break
	sleep 0.1 2>/dev/null || sleep 1
	tries=$((tries + 1))
done
rm -rf -- "$@"
`

// Reaper ends the processes that were started through Wrap and removes its
// folders, at Close or when our process is gone.
type Reaper struct {
	dir   string // pids/, open, and the wrapper scripts
	shell *exec.Cmd
	pipe  io.Closer
}

// New starts a reaper that removes the given folders at its end. They need not
// exist yet.
func New(folders ...string) (*Reaper, error) {
	dir, err := os.MkdirTemp("", "crmirror-reaper-")
	if err != nil {
		return nil, fmt.Errorf("create folder for reaper: %w", err)
	}
	if err := os.Mkdir(filepath.Join(dir, "pids"), 0o700); err != nil {
		return nil, fmt.Errorf("create folder for reaper: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "open"), nil, 0o600); err != nil {
		return nil, fmt.Errorf("create folder for reaper: %w", err)
	}
	args := []string{"-c", script, "crmirror-reaper", dir}
	for _, folder := range folders {
		abs, err := filepath.Abs(folder)
		if err != nil {
			return nil, fmt.Errorf("start reaper: %w", err)
		}
		args = append(args, abs)
	}
	// No standard output or error: whoever waits for ours to be closed, as "go
	// test" does, must not wait for the shell.
	shell := exec.Command("/bin/sh", args...)
	shell.Dir = "/"
	shell.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	pipe, err := shell.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start reaper: %w", err)
	}
	if err := shell.Start(); err != nil {
		return nil, fmt.Errorf("start reaper: %w", err)
	}
	return &Reaper{dir: dir, shell: shell, pipe: pipe}, nil
}

// Wrap returns the path of an executable that becomes binary, with the same
// process id and arguments, after it was announced to the reaper.
func (r *Reaper) Wrap(binary string) (string, error) {
	pids := quote(filepath.Join(r.dir, "pids"))
	open := quote(filepath.Join(r.dir, "open"))
	name := filepath.Base(binary)
	text := "#!/bin/sh\n" + started +
		"{ echo " + quote(name) + "; started $$; } > " + pids + "/$$ || exit 1\n" +
		"[ -e " + open + " ] || exit 1\n" +
		"exec " + quote(binary) + " \"$@\"\n"
	path := filepath.Join(r.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
		return "", fmt.Errorf("write wrapper of %s: %w", name, err)
	}
	return path, nil
}

// Forget tells the reaper that the processes of a wrapped binary, given by its
// base name, have ended, so that a reused process id is not taken for theirs.
func (r *Reaper) Forget(name string) error {
	files, err := filepath.Glob(filepath.Join(r.dir, "pids", "*"))
	if err != nil {
		return fmt.Errorf("forget %s: %w", name, err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("forget %s: %w", name, err)
		}
		if first, _, _ := strings.Cut(string(content), "\n"); first != name {
			continue
		}
		if err := os.Remove(file); err != nil {
			return fmt.Errorf("forget %s: %w", name, err)
		}
	}
	return nil
}

// Close kills the processes that are left, removes the folders and waits until
// that is done.
func (r *Reaper) Close() error {
	if err := r.pipe.Close(); err != nil {
		return fmt.Errorf("stop reaper: %w", err)
	}
	if err := r.shell.Wait(); err != nil {
		return fmt.Errorf("stop reaper: %w", err)
	}
	return nil
}

// quote makes text one word of a shell script.
func quote(text string) string {
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
