package remote

import (
	"errors"
	"fmt"
	"strings"
)

// What a caller can branch on; every error of this package that means one of
// these wraps it.
var (
	// ErrDiverged: a ref at the remote is not what was last fetched, so
	// somebody else pushed. Fetch, derive again, push.
	ErrDiverged = errors.New("the remote branch moved")
	// ErrRefused: the server took the push and said no.
	ErrRefused = errors.New("the server refused")
	// ErrAuth: the credentials are missing, wrong, or not allowed to do this.
	ErrAuth = errors.New("not authorized")
	// ErrHostKey: the ssh server's key is unknown, or not the one known.
	ErrHostKey = errors.New("host key not accepted")
	// ErrUnreachable: the server could not be talked to; later it may.
	ErrUnreachable = errors.New("remote unreachable")
	// ErrNotFound: the server answers but has no such repository.
	ErrNotFound = errors.New("repository not found")
)

// RefusedError is a push that the server turned down for a reason of its own:
// a protected branch, a hook, a quota. It is ErrRefused.
type RefusedError struct {
	Ref    string
	Reason string // the status, as the server gave it
	Words  string // what the server or its hooks printed, may be empty
}

func (e *RefusedError) Error() string {
	s := fmt.Sprintf("the server refused %s: %s", e.Ref, e.Reason)
	if e.Words != "" {
		s += " (" + strings.ReplaceAll(e.Words, "\n", "; ") + ")"
	}
	return s
}

// Is makes the error an ErrRefused.
func (e *RefusedError) Is(target error) bool { return target == ErrRefused }

// CredentialError is a file of ours with a secret that cannot be used: the server was not asked. It is ErrAuth.
type CredentialError struct {
	What string // "token", "ssh key", …
	Err  error  // names the file
}

func (e *CredentialError) Error() string { return "read " + e.What + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *CredentialError) Unwrap() error { return e.Err }

// Is makes the error an ErrAuth.
func (e *CredentialError) Is(target error) bool { return target == ErrAuth }

// HostKeyError is an ssh server whose key the known_hosts file does not
// accept. It is ErrHostKey.
type HostKeyError struct {
	Host        string // as known_hosts would name it
	KeyType     string // "ssh-ed25519"
	Fingerprint string // "SHA256:…" of the key that was offered
	File        string // the known_hosts file
	Line        string // what to add to File, once the fingerprint is verified
	Known       int    // how many other keys File has for the host; 0 means an unknown host
}

func (e *HostKeyError) Error() string {
	if e.Known == 0 {
		return fmt.Sprintf("%s is not in %s: it offers the %s key %s; verify that fingerprint with whoever runs the server, then add the line: %s",
			e.Host, e.File, e.KeyType, e.Fingerprint, e.Line)
	}
	return fmt.Sprintf("%s offers the %s key %s, which is not the one in %s: somebody may be intercepting the connection, or the server got a new key; "+
		"verify the fingerprint with whoever runs the server, then replace its lines in that file by: %s",
		e.Host, e.KeyType, e.Fingerprint, e.File, e.Line)
}

// Is makes the error an ErrHostKey.
func (e *HostKeyError) Is(target error) bool { return target == ErrHostKey }
