package config

import (
	"errors"
	"net"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/crmirror/crmirror/kube"
)

// clusterName is what can stand in a ref and a path without escaping.
var clusterName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// validate reports everything that is wrong with c, and prepares its selection.
func (c *Config) validate(p *places) {
	c.validateHead(p)
	c.validateRepository(p)
	c.validateRules(p)
	c.validateTimes(p)
	c.validateLease(p)
	if c.Batch.MaxObjects < 1 {
		p.report("batch.maxObjects", "is %d, want at least 1", c.Batch.MaxObjects)
	}
	if c.Guard.MaxDeleteObjects < 0 {
		p.report("guard.maxDeleteObjects", "is %d, want 0 or more", c.Guard.MaxDeleteObjects)
	}
	if n := c.Guard.MaxDeletePercent; n < 0 || n > 100 {
		p.report("guard.maxDeletePercent", "is %d, want 0 to 100", n)
	}
	oneOf(p, "log.level", c.Log.Level, "error", "warn", "info", "debug")
	oneOf(p, "log.format", c.Log.Format, "text", "json")
	if c.Health.Listen != "" {
		if _, _, err := net.SplitHostPort(c.Health.Listen); err != nil {
			p.report("health.listen", "%q is no address; write it like :8080 or 127.0.0.1:8080", c.Health.Listen)
		}
	}
}

func (c *Config) validateHead(p *places) {
	oneOf(p, "apiVersion", c.APIVersion, APIVersion)
	oneOf(p, "kind", c.Kind, Kind)
	switch {
	case p.reported("cluster"):
	case c.Cluster == "":
		p.report("cluster", "is missing: a name for the cluster, for commits, refs and reports")
	case !clusterName.MatchString(c.Cluster):
		p.report("cluster", "%q is no name: a-z, 0-9 and -, at most 63 characters, a letter or digit at both ends", c.Cluster)
	}
	oneOf(p, "mode", c.Mode, ModeMirror, ModeTwoWay)
	if c.Mode == ModeTwoWay && c.Repository.IsPath() && !p.reported("repository.url") {
		p.report("repository.url", "mode two-way moves branch and refs together, which a remote can do and a repository of your own cannot; "+
			"give its remote, or a bare repository as file:///path")
	}
}

func oneOf(p *places, path, got string, want ...string) {
	if !slices.Contains(want, got) && !p.reported(path) {
		p.report(path, "is %q, want %s%s", got, strings.Join(want, ", "), Suggest(got, want))
	}
}

func (c *Config) validateTimes(p *places) {
	atLeast := func(path string, got, least time.Duration) {
		if got < least && !p.reported(path) {
			p.report(path, "is %v, want at least %v", got, least)
		}
	}
	atLeast("batch.quiet", c.Batch.Quiet, 0)
	atLeast("batch.max", c.Batch.Max, c.Batch.Quiet)
	atLeast("apply.poll", c.Apply.Poll, time.Second)
	atLeast("timeouts.git", c.Timeouts.Git, time.Second)
	atLeast("timeouts.kubernetes", c.Timeouts.Kubernetes, time.Second)
	atLeast("timeouts.grace", c.Timeouts.Grace, 0)
	for _, s := range []struct{ path, spec string }{
		{"schedule.resync", c.Schedule.Resync},
		{"schedule.snapshotTag", c.Schedule.SnapshotTag},
		{"schedule.maintenance", c.Schedule.Maintenance},
	} {
		if s.spec == "" {
			continue
		}
		if _, err := parseSchedule(s.spec); err != nil {
			p.report(s.path, `%q is no schedule: %v; write it like "0 3 * * *", "@daily" or "@every 6h"`, s.spec, err)
		}
	}
}

// parseSchedule reads a cron expression. The library panics on some malformed
// time zones, so those are refused before it sees them: schedules are in the
// agent's own time zone.
func parseSchedule(spec string) (cron.Schedule, error) {
	if strings.Contains(spec, "TZ=") {
		return nil, errors.New("a time zone cannot be set here")
	}
	return cron.ParseStandard(spec)
}

// validateRules prepares the selection; the kube package says what is wrong
// with a rule, and here it gets its line.
func (c *Config) validateRules(p *places) {
	if len(c.Select) == 0 && !p.reported("select") {
		p.report("select", `selects nothing; every custom resource is: [{resources: ["*"]}]`)
	}
	var key []byte
	if file := c.Redaction.KeyFile; file != "" && p.elsewhere {
		key = make([]byte, minKeyBytes)
	} else if file != "" {
		var err error
		if key, err = readKey(file); err != nil {
			p.report("redaction.keyFile", "%s: %v", file, err)
		}
	}
	var s kube.Selection
	for i, r := range c.Select {
		rule := r.rule()
		rule.SkipOwned = r.SkipOwned
		rule.Shape.Status = r.Status
		rule.Shape.Drop = fieldPaths(p, listPath("select", i, "drop"), r.Drop)
		rule.Shape.Redact = fieldPaths(p, listPath("select", i, "redact"), r.Redact)
		if rule.Shape.RedactKey = key; len(r.Redact) > 0 && key == nil && p.reported("redaction.keyFile") {
			rule.Shape.RedactKey = make([]byte, minKeyBytes) // its own mistake is told already
		}
		s.Select = append(s.Select, rule)
	}
	for _, m := range c.Exclude {
		s.Exclude = append(s.Exclude, m.rule())
	}
	_, err := s.Compile()
	reportRules(p, err)
	c.selection = s
}

func (m *Matcher) rule() kube.Rule {
	return kube.Rule{
		Resources: m.Resources, Namespaces: m.Namespaces, ExcludeNamespaces: m.ExcludeNamespaces,
		Names: m.Names, LabelSelector: m.LabelSelector,
	}
}

func fieldPaths(p *places, path string, list []string) []kube.FieldPath {
	var out []kube.FieldPath
	for i, text := range list {
		field, err := kube.ParseFieldPath(text)
		if err != nil {
			p.report(itemPath(path, i), "%v", err)
			continue
		}
		out = append(out, field)
	}
	return out
}

// reportRules reports each *kube.RuleError within err at its key.
func reportRules(p *places, err error) {
	if err == nil {
		return
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			reportRules(p, e)
		}
		return
	}
	var rule *kube.RuleError
	if !errors.As(err, &rule) {
		p.report("select", "%v", err)
		return
	}
	path := listPath(rule.List, rule.Index, rule.Field)
	if rule.Item >= 0 {
		path = itemPath(path, rule.Item)
	}
	if !p.reported(path) {
		p.report(path, "%s", rule.Msg)
	}
}
