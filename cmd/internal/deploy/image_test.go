package deploy

import (
	"crypto/sha256"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
)

// The Dockerfile's own build command, on nothing but what its COPY lines take and
// .dockerignore lets through, makes a static binary that knows its version, and the
// same one in any folder.
func TestDockerfileBuilds(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(world.root, "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	stage, _, _ := strings.Cut(string(text), "\nFROM gcr.io")
	ignored, err := os.ReadFile(filepath.Join(world.root, ".dockerignore"))
	if err != nil {
		t.Fatal(err)
	}
	command := regexp.MustCompile(`(?m)^RUN (.*go build.*)$`).FindStringSubmatch(stage)
	if command == nil {
		t.Fatal("the Dockerfile builds nothing")
	}
	var digests [2][sha256.Size]byte
	for i := range digests {
		src := filepath.Join(t.TempDir(), strings.Repeat("elsewhere", i), "src")
		for _, line := range regexp.MustCompile(`(?m)^COPY ([^-].*) (\S+)$`).FindAllStringSubmatch(stage, -1) {
			for _, name := range strings.Fields(line[1]) {
				if !strings.Contains(string(ignored), "\n!"+name+"\n") {
					t.Errorf(".dockerignore keeps %s out", name)
				}
				copyInto(t, name, filepath.Join(src, line[2]))
			}
		}
		out := filepath.Join(src, "crmirror")
		build := exec.CommandContext(t.Context(), "sh", "-ec", strings.Replace(command[1], "-o /crmirror", "-o "+out, 1))
		build.Dir = src
		build.Env = append(os.Environ(), "VERSION=v1.2.3", "TARGETOS="+runtime.GOOS, "TARGETARCH="+runtime.GOARCH)
		if said, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", command[1], err, said)
		}
		binary, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		digests[i] = sha256.Sum256(binary)
		if i == 0 {
			checkBinary(t, out, binary)
		}
	}
	if digests[0] != digests[1] {
		t.Errorf("two folders: got %x and %x, want the same binary", digests[0], digests[1])
	}
}

func checkBinary(t *testing.T, file string, binary []byte) {
	t.Helper()
	if strings.Contains(string(binary), filepath.Dir(file)) {
		t.Error("the binary holds the path of its sources")
	}
	if strings.Contains(string(binary), "ld-linux") {
		t.Error("the binary is linked dynamically")
	}
	said, err := output(t, file, "version")
	if err != nil || string(said) != "crmirror v1.2.3\n" {
		t.Errorf("version: got %q, %v, want v1.2.3", said, err)
	}
}

// copyInto copies a file or folder of the repository, as COPY does.
func copyInto(t *testing.T, name, to string) {
	t.Helper()
	from := filepath.Join(world.root, name)
	info, err := os.Stat(from)
	if err != nil {
		t.Fatal(err)
	}
	if info.IsDir() {
		err = os.CopyFS(to, os.DirFS(from))
	} else if err = os.MkdirAll(to, 0o755); err == nil {
		var content []byte
		if content, err = os.ReadFile(from); err == nil {
			err = os.WriteFile(filepath.Join(to, name), content, 0o600)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}
