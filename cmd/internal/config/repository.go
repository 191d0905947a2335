package config

import (
	"cmp"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// scpLike matches git's short form of an ssh address: user@host:path.
var scpLike = regexp.MustCompile(`^[^/@:\s]+@[^/:\s]+:.+`)

// scheme matches the beginning of a URL.
var scheme = regexp.MustCompile(`^([a-zA-Z][a-zA-Z0-9+.-]*)://`)

// Scheme returns how the repository is reached: "ssh", "https", "http" or
// "file"; "" when URL is a plain path.
func (r *Repository) Scheme() string {
	if m := scheme.FindStringSubmatch(r.URL); m != nil {
		return strings.ToLower(m[1])
	}
	if scpLike.MatchString(r.URL) {
		return "ssh"
	}
	return ""
}

// IsPath tells whether URL is a plain path: a repository that is somebody's own.
func (r *Repository) IsPath() bool { return r.Scheme() == "" }

func (c *Config) validateRepository(p *places) {
	r := &c.Repository
	r.validateURL(p)
	r.validateAuth(p)
	if r.Branch != "" && !validBranch(r.Branch) {
		p.report("repository.branch", "%q is no name of a branch%s", r.Branch, branchHint(r.Branch))
	}
	if r.Refs = strings.TrimSuffix(r.Refs, "/"); !strings.HasPrefix(r.Refs, "refs/") || !validBranch(strings.TrimPrefix(r.Refs, "refs/")) {
		p.report("repository.refs", "%q is no beginning of a ref's name; write refs/crmirror, or refs/heads/crmirror for a forge that takes nothing but branches", r.Refs)
	}
	r.Path = strings.TrimSuffix(r.Path, "/")
	if r.Path != "" && !validPath(r.Path) {
		p.report("repository.path", "%q is no path within a repository; write it like clusters/prod-eu1, without a leading slash, . or ..", r.Path)
	}
	for _, a := range []struct{ path, value string }{
		{"repository.author.name", r.Author.Name}, {"repository.author.email", r.Author.Email},
	} {
		if strings.TrimSpace(a.value) == "" || strings.ContainsAny(a.value, "<>\n\r\x00") {
			p.report(a.path, "%q cannot stand in a commit: it must not be empty or hold <, > or a line break", a.value)
		}
	}
}

// validateURL never repeats the URL: it may hold a credential.
func (r *Repository) validateURL(p *places) {
	const at = "repository.url"
	if r.URL == "" {
		if !p.reported(at) {
			p.report(at, "is missing: a URL (ssh, https, http, file) or the path of a repository")
		}
		return
	}
	if strings.ContainsAny(r.URL, "\n\r\x00") {
		p.report(at, "holds a control character")
		return
	}
	if scheme.FindString(r.URL) == "" {
		return // scp-like or a path
	}
	u, err := url.Parse(r.URL)
	if err != nil {
		p.report(at, "is no valid URL")
		return
	}
	s := r.Scheme()
	switch {
	case !slices.Contains([]string{"ssh", "https", "http", "file"}, s):
		p.report(at, "%s:// is not supported; use ssh, https, http or file, or a plain path", s)
	case s != "file" && u.Hostname() == "":
		p.report(at, "names no host")
	}
	_, hasPassword := u.User.Password()
	if hasPassword || u.User != nil && (s == "https" || s == "http") {
		p.report(at, "holds a credential, which would show in process lists and logs; take it out and set "+
			"repository.auth.username and repository.auth.passwordFile or tokenFile")
	}
}

// credential is one key of auth.
type credential struct {
	key, value string
	schemes    []string // for which transports it is
}

func (a *Auth) credentials() []credential {
	web, ssh := []string{"https", "http"}, []string{"ssh"}
	return []credential{
		{"sshKeyFile", a.SSHKeyFile, ssh},
		{"sshKeyPassphraseFile", a.SSHKeyPassphraseFile, ssh},
		{"knownHostsFile", a.KnownHostsFile, ssh},
		{"username", a.Username, []string{"https", "http", "ssh"}},
		{"passwordFile", a.PasswordFile, web},
		{"tokenFile", a.TokenFile, web},
		{"bearerTokenFile", a.BearerTokenFile, web},
		{"caFile", a.CAFile, []string{"https"}},
	}
}

func (r *Repository) validateAuth(p *places) {
	const at = "repository.auth."
	given := map[string]string{}
	var secrets []string
	for _, c := range r.Auth.credentials() {
		given[c.key] = c.value
		if c.value == "" {
			continue
		}
		if r.URL != "" && !p.reported("repository.url") && !slices.Contains(c.schemes, r.Scheme()) {
			p.report(at+c.key, "is for %s, but repository.url is %s", strings.Join(c.schemes, " and "), cmp.Or(r.Scheme(), "a plain path"))
		}
		if c.key == "passwordFile" || c.key == "tokenFile" || c.key == "bearerTokenFile" {
			secrets = append(secrets, c.key)
		}
	}
	if r.Auth.InsecureHTTP && r.URL != "" && !p.reported("repository.url") && r.Scheme() != "http" {
		p.report(at+"insecureHTTP", "is for http, but repository.url is %s", cmp.Or(r.Scheme(), "a plain path"))
	}
	if len(secrets) > 1 {
		p.report(at+secrets[1], "is set besides %s; keep one of them", secrets[0])
	}
	for _, pair := range [][2]string{
		{"passwordFile", "username"}, {"sshKeyPassphraseFile", "sshKeyFile"},
	} {
		if given[pair[0]] != "" && given[pair[1]] == "" {
			p.report(at+pair[0], "needs %s too", pair[1])
		}
	}
}

// validBranch follows git check-ref-format --branch.
func validBranch(b string) bool {
	if strings.HasPrefix(b, "-") || strings.HasPrefix(b, "refs/") || b == "HEAD" || b == "@" ||
		strings.Contains(b, "..") || strings.Contains(b, "@{") || strings.HasSuffix(b, ".") ||
		strings.ContainsFunc(b, func(r rune) bool { return r <= ' ' || r == 0x7f || strings.ContainsRune(`~^:?*[\`, r) }) {
		return false
	}
	for part := range strings.SplitSeq(b, "/") {
		if part == "" || strings.HasPrefix(part, ".") || strings.HasSuffix(part, ".lock") {
			return false
		}
	}
	return true
}

func branchHint(b string) string {
	if short, ok := strings.CutPrefix(b, "refs/heads/"); ok {
		return "; write it as " + strconv.Quote(short)
	}
	return ""
}

// validPath tells whether git and every file system can carry the path.
func validPath(s string) bool {
	if path.IsAbs(s) || path.Clean(s) != s || strings.ContainsAny(s, "\\\n\r\x00:") {
		return false
	}
	for part := range strings.SplitSeq(s, "/") {
		if part == "." || part == ".." || strings.EqualFold(part, ".git") {
			return false
		}
	}
	return true
}

func listPath(list string, i int, field string) string { return itemPath(list, i) + "." + field }

func itemPath(list string, i int) string { return list + "[" + strconv.Itoa(i) + "]" }
