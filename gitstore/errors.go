package gitstore

import (
	"errors"

	"github.com/crmirror/crmirror/gitstore/odb"
	"github.com/crmirror/crmirror/gitstore/refs"
	"github.com/crmirror/crmirror/gitstore/remote"
)

// What a caller can branch on with errors.Is.
var (
	// ErrDiverged: the branch or a ref moved under us, at the remote or, in a
	// person's repository, here. Fetch, derive again.
	ErrDiverged = remote.ErrDiverged
	// ErrBehind: where a person's repository pushes to has commits that it lacks.
	// Deriving again does not help; the person has to bring them in.
	ErrBehind = errors.New("its remote is ahead")
	// ErrBusy: a person is in the middle of something that a commit to the branch
	// would break. The same commit can be made once they are done.
	ErrBusy = errors.New("a person is at work on the branch")
	// ErrRefused: the server said no (a *RefusedError), as to a protected branch.
	ErrRefused = remote.ErrRefused
	// ErrAuth: credentials missing, wrong or insufficient.
	ErrAuth = remote.ErrAuth
	// ErrHostKey: the ssh server's key is not accepted (a *HostKeyError).
	ErrHostKey = remote.ErrHostKey
	// ErrNotAtomic: the server cannot move several refs together, as PushIf needs.
	ErrNotAtomic = remote.ErrNotAtomic
	// ErrUnreachable: the remote cannot be talked to now.
	ErrUnreachable = remote.ErrUnreachable
	// ErrNotFound: the server has no such repository.
	ErrNotFound = remote.ErrNotFound
	// ErrNoRevision: no commit has that hash, tag, branch or time.
	ErrNoRevision = errors.New("there is no such commit, tag or branch")
	// ErrAmbiguous: an abbreviated hash stands for several commits.
	ErrAmbiguous = errors.New("ambiguous")
	// ErrShallow: history here ends before what was asked for.
	ErrShallow = errors.New("history here is not whole")
	// ErrMissing: an object is neither here nor at the remote.
	ErrMissing = odb.ErrMissing
	// ErrLocked: another git process holds a lock.
	ErrLocked = refs.ErrLocked
	// ErrInUse: another crmirror has this folder open.
	ErrInUse = errors.New("in use by another crmirror")
	// ErrUnsupported: a repository of a kind that is refused, by name.
	ErrUnsupported = errors.New("not supported")
	// ErrDamaged: a person's own repository that cannot be read.
	ErrDamaged = errors.New("damaged repository")
)

// RefusedError carries the server's words about a push it turned down.
type RefusedError = remote.RefusedError

// CredentialError names a file with a secret that cannot be used; no server was asked.
type CredentialError = remote.CredentialError

// HostKeyError says which key an ssh server offered and what to do.
type HostKeyError = remote.HostKeyError
