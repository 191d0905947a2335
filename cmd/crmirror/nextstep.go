package main

import (
	"context"
	"crypto/x509"
	"errors"
	"net/url"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/crmirror/crmirror/cmd/internal/config"
	"github.com/crmirror/crmirror/gitstore"
	"github.com/crmirror/crmirror/kube/apply"
)

// isConfigError tells whether the configuration is what is wrong.
func isConfigError(err error) bool {
	var errs config.Errors
	return errors.As(err, &errs)
}

// refusesRefs tells whether the remote refused a ref of ours that is no branch.
func refusesRefs(err error) bool {
	var refused *gitstore.RefusedError
	return errors.As(err, &refused) && !strings.HasPrefix(refused.Ref, "refs/heads/")
}

// explain writes an error for people: what is wrong and, where that can be
// told, the next thing to do. reads says that the command only reads the repository.
func explain(err error, reads bool) string {
	text := err.Error()
	if next := nextStep(err, reads); next != "" {
		text += "\n" + next
	}
	return strings.ReplaceAll(cleanLines(text), "\n", "\n  ")
}

func nextStep(err error, reads bool) string {
	var credential *gitstore.CredentialError
	var request *url.Error // of the API server: git's own errors have their classes
	var rejected *apply.Rejected
	switch {
	case errors.As(err, &rejected):
		return nextAfter(rejected.Verdict)
	case errors.As(err, &credential):
		return nextCredential(credential.What)
	case errors.Is(err, gitstore.ErrAuth) && reads:
		return "Check --token-file or --ssh-key-file, or repository.auth: the token or key has to allow reading this repository."
	case errors.Is(err, gitstore.ErrAuth):
		return "Check --token-file or --ssh-key-file, or repository.auth: the token or key has to allow pushing to this repository."
	case refusesRefs(err):
		return "If it takes nothing but branches, let crmirror keep its own refs among them: repository.refs: refs/heads/crmirror."
	case errors.Is(err, gitstore.ErrNotAtomic):
		return "Mode two-way needs a server that moves branch and refs together; git itself, GitHub, GitLab and Gitea do."
	case errors.Is(err, gitstore.ErrRefused):
		return "If the branch is protected, let crmirror push to a branch of its own (repository.branch: crmirror) " +
			"and merge that by pull requests, or allow its account to push."
	case errors.Is(err, gitstore.ErrNotFound):
		return "Check --repo, or repository.url; a forge also says so when the account may not see the repository."
	case errors.Is(err, gitstore.ErrInUse):
		return "Stop the other one, or name another folder with --cache-dir."
	case errors.Is(err, gitstore.ErrUnreachable) && errors.As(err, &x509.UnknownAuthorityError{}):
		return "If the server's certificate is signed by an authority of your own, name the file with that authority's certificate " +
			"in repository.auth.caFile."
	case errors.Is(err, gitstore.ErrUnreachable):
		return "Check --repo, or repository.url, and the network between here and there."
	case apierrors.IsUnauthorized(err):
		return "The API server does not accept the credentials of this kubeconfig; try: kubectl get namespaces"
	case apierrors.IsForbidden(err):
		return "The account may not do this in the cluster; crmirror rbac --config FILE prints the rights that it needs."
	case errors.As(err, &request) && (utilnet.IsConnectionRefused(err) || utilnet.IsTimeout(err)):
		return unreachable
	case errors.Is(err, context.DeadlineExceeded):
		return "It took longer than the timeouts in the configuration allow; the next start goes on from there."
	}
	return ""
}

// nextCredential is the next step when a file with a secret cannot be used.
func nextCredential(what string) string {
	switch what {
	case "token":
		return "Name a file that holds the token alone: --token-file, or repository.auth.tokenFile."
	case "ssh key":
		return "Name a file that holds a private key, as ssh-keygen writes it: --ssh-key-file, or repository.auth.sshKeyFile."
	}
	return "Check the files that repository.auth names."
}

// readsOnly tells whether a command takes from the repository and never pushes to it.
func readsOnly(command string) bool {
	return slices.Contains([]string{"restore", "verify", "diff", "log", "explain"}, command)
}

const unreachable = "The API server cannot be reached; try: kubectl get namespaces"

// nextAfter is the next step when the API server refused something that the whole command needs.
func nextAfter(v apply.Verdict) string {
	switch v {
	case apply.Forbidden:
		return "The account may not do this in the cluster; a restore needs to list, get, create and update what it brings back."
	case apply.Unavailable:
		return unreachable
	}
	return ""
}
