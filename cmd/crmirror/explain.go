package main

import (
	"context"
	"crypto/x509"
	"errors"
	"net/url"
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
// told, the next thing to do.
func explain(err error) string {
	text := err.Error()
	if next := nextStep(err); next != "" {
		text += "\n" + next
	}
	return strings.ReplaceAll(cleanLines(text), "\n", "\n  ")
}

func nextStep(err error) string {
	var request *url.Error // of the API server: git's own errors have their classes
	var rejected *apply.Rejected
	switch {
	case errors.As(err, &rejected):
		return nextAfter(rejected.Verdict)
	case errors.Is(err, gitstore.ErrAuth):
		return "Check repository.auth: the token or key has to allow pushing to this repository."
	case refusesRefs(err):
		return "If it takes nothing but branches, let crmirror keep its own refs among them: repository.refs: refs/heads/crmirror."
	case errors.Is(err, gitstore.ErrNotAtomic):
		return "Mode two-way needs a server that moves branch and refs together; git itself, GitHub, GitLab and Gitea do."
	case errors.Is(err, gitstore.ErrRefused):
		return "If the branch is protected, let crmirror push to a branch of its own (repository.branch: crmirror) " +
			"and merge that by pull requests, or allow its account to push."
	case errors.Is(err, gitstore.ErrNotFound):
		return "Check repository.url; a forge also says so when the account may not see the repository."
	case errors.Is(err, gitstore.ErrInUse):
		return "Stop the other one, or name another folder with --cache-dir."
	case errors.Is(err, gitstore.ErrUnreachable) && errors.As(err, &x509.UnknownAuthorityError{}):
		return "If the server's certificate is signed by an authority of your own, name the file with that authority's certificate " +
			"in repository.auth.caFile."
	case errors.Is(err, gitstore.ErrUnreachable):
		return "Check repository.url and the network between here and there."
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
