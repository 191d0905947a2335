package gittest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// InitBare creates an empty bare repository at dir whose HEAD names branch. It
// takes pushes over HTTP, and serves partial clones and single objects, as the
// large hosting services do.
func InitBare(ctx context.Context, dir, branch string) error {
	if _, err := Run(ctx, "", "init", "--quiet", "--bare", "--initial-branch="+branch, dir); err != nil {
		return err
	}
	for _, setting := range []string{"http.receivepack", "uploadpack.allowFilter", "uploadpack.allowAnySHA1InWant"} {
		if _, err := Run(ctx, dir, "config", setting, "true"); err != nil {
			return err
		}
	}
	return nil
}

// ProtectBranch makes the bare repository at dir refuse pushes to a branch, in
// the words of a hosting service.
func ProtectBranch(dir, branch string) error {
	return Hook(dir, "pre-receive", "#!/bin/sh\n"+
		"while read -r old new ref; do\n"+
		"  if [ \"$ref\" = "+quote("refs/heads/"+branch)+" ]; then\n"+
		"    echo 'GH006: Protected branch update failed for '\"$ref\"'.' >&2\n"+
		"    echo 'Changes must be made through a pull request.' >&2\n"+
		"    exit 1\n"+
		"  fi\n"+
		"done\n")
}

// Hook writes a hook script into the bare repository at dir; an empty script
// removes the hook.
func Hook(dir, name, script string) error {
	path := filepath.Join(dir, "hooks", name)
	if script == "" {
		if err := os.Remove(path); err != nil {
			return fmt.Errorf("remove hook %s: %w", name, err)
		}
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("write hook %s: %w", name, err)
	}
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
		return fmt.Errorf("write hook %s: %w", name, err)
	}
	return nil
}
