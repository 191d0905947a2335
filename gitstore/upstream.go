package gitstore

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/crmirror/crmirror/gitstore/remote"
)

// findOwnRemote finds where a person's repository pushes to, as git push does:
// the branch's pushRemote, remote.pushDefault, the branch's upstream, "origin";
// there its pushurl, else its url. Without one, Push does nothing. Only the
// repository's own configuration counts.
func (s *Store) findOwnRemote() error {
	url, err := s.pushURL()
	if err != nil || url == "" {
		return err
	}
	// A path in a repository's configuration is relative to the repository.
	if parsed, err := remote.Parse(url); err == nil && parsed.Scheme == "file" && !strings.Contains(url, "://") && !filepath.IsAbs(url) {
		url = filepath.Join(s.opts.Dir, url)
	}
	s.remote, err = remote.New(url, s.opts.Auth, s.opts.Timeout)
	return err
}

// pushURL is where the configuration says to push, "" for nowhere. What it says
// in a way that we do not follow is refused: pushing elsewhere would be worse.
func (s *Store) pushURL() (string, error) {
	raw := s.config.Raw
	branch := raw.Section("branch").Subsection(s.branch)
	name, by := "origin", ""
	for _, c := range []struct{ value, key string }{
		{branch.Option("pushRemote"), "branch." + s.branch + ".pushRemote"},
		{raw.Section("remote").Option("pushDefault"), "remote.pushDefault"},
		{branch.Option("remote"), "branch." + s.branch + ".remote"},
	} {
		if c.value != "" && c.value != "." {
			name, by = c.value, c.key
			break
		}
	}
	if !raw.Section("remote").HasSubsection(name) {
		if by == "" {
			return "", nil
		}
		return "", fmt.Errorf("open repository %s: %w: %s is %s, and there is no remote of that name; add it with git remote add, or: git -C %s config --unset %s",
			s.opts.Dir, ErrUnsupported, by, remote.Redact(name), s.opts.Dir, by)
	}
	options := raw.Section("remote").Subsection(name).Options
	urls, key := options.GetAll("pushurl"), "pushInsteadOf"
	if len(urls) == 0 {
		urls = options.GetAll("url")
	} else {
		key = "" // git rewrites no pushurl by pushInsteadOf
	}
	switch len(urls) {
	case 0:
		return "", nil
	case 1:
	default:
		return "", fmt.Errorf("open repository %s: %w: the remote %s has %d URLs to push to; crmirror pushes to one", s.opts.Dir, ErrUnsupported, name, len(urls))
	}
	return urls[0], s.checkRewrite(urls[0], key)
}

// checkRewrite refuses a URL that git would rewrite by url.*.insteadOf, and by
// a further key unless that is empty.
func (s *Store) checkRewrite(url, key string) error {
	for _, base := range s.config.Raw.Section("url").Subsections {
		for _, k := range []string{"insteadOf", key} {
			if k == "" {
				continue
			}
			for _, prefix := range base.Options.GetAll(k) {
				if strings.HasPrefix(url, prefix) {
					return fmt.Errorf("open repository %s: %w: url.%s.%s rewrites the remote's URL; write the whole URL into the remote with git remote set-url",
						s.opts.Dir, ErrUnsupported, remote.Redact(base.Name), k)
				}
			}
		}
	}
	return nil
}
