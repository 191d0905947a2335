package config

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
)

// LeaseName returns the name of the Lease that agents of this configuration compete for:
// the one that is set, or one of cluster, repository, branch and path, so that only agents
// that write to the same place do.
func (c *Config) LeaseName() string {
	if c.LeaderElection.Name != "" {
		return c.LeaderElection.Name
	}
	sum := sha256.Sum256([]byte(strings.Join([]string{c.Repository.URL, c.Repository.Branch, c.Repository.Path}, "\x00")))
	return "crmirror-" + c.Cluster + "-" + hex.EncodeToString(sum[:4])
}

func (c *Config) validateLease(p *places) {
	e := c.LeaderElection
	report := func(key, format string, args ...any) {
		if path := "leaderElection." + key; !p.reported(path) {
			p.report(path, format, args...)
		}
	}
	if e.Enabled && c.Repository.IsPath() && !p.reported("repository.url") {
		report("enabled", "a repository of your own is locked by the agent that has it open, so no other one can stand by; give its remote as repository.url")
	}
	for key, text := range map[string]string{"namespace": e.Namespace, "name": e.Name} {
		if text == "" {
			continue
		}
		if wrong := validation.IsDNS1123Subdomain(text); len(wrong) > 0 {
			report(key, "%q is no name: %s", text, wrong[0])
		}
	}
	switch {
	case e.LeaseDuration < time.Second || e.LeaseDuration%time.Second != 0:
		report("leaseDuration", "is %v, want whole seconds, at least 1s", e.LeaseDuration)
	case e.RenewDeadline >= e.LeaseDuration || e.RenewDeadline <= 0:
		report("renewDeadline", "is %v, want less than leaseDuration (%v), and more than 0s", e.RenewDeadline, e.LeaseDuration)
	case e.RetryPeriod <= 0 || e.RetryPeriod*2 > e.RenewDeadline:
		report("retryPeriod", "is %v, want at most half of renewDeadline (%v), and more than 0s", e.RetryPeriod, e.RenewDeadline)
	}
}
