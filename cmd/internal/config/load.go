package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// Override is a value that a flag sets, or a command's own default.
type Override struct {
	Path    string // one of Paths, or "select": comma-separated resources, in place of all rules
	Value   string // a list is separated by commas
	Source  string // for messages: "--repo"
	Default bool   // lies below the file and the variables, not above them
}

// Load reads a configuration: defaults, then the file ("" = none), then the
// CRMIRROR_* variables of environ ("NAME=value"), then flags. The error is an
// Errors with every mistake.
func Load(file string, environ []string, flags []Override) (*Config, error) {
	return load(file, environ, flags, &places{file: file})
}

// LoadElsewhere is Load for what is asked about a configuration on another machine
// than the agent's: the redaction key need not be there. Nothing can be redacted by
// what it returns.
func LoadElsewhere(file string, environ []string, flags []Override) (*Config, error) {
	return load(file, environ, flags, &places{file: file, elsewhere: true})
}

func load(file string, environ []string, flags []Override, p *places) (*Config, error) {
	var content []byte
	if file != "" {
		var err error
		if content, err = os.ReadFile(file); err != nil {
			return nil, Errors{{Source: file, Msg: unreadable(err)}}
		}
	}
	return parseInto(p, content, environ, flags)
}

func unreadable(err error) string {
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		err = pathErr.Err // the path stands before the message already
	}
	return "cannot be read: " + err.Error()
}

func parseInto(p *places, content []byte, environ []string, flags []Override) (*Config, error) {
	c := defaults()
	c.places = p
	p.set = map[string]place{}
	for _, o := range flags {
		if o.Default {
			p.override(c, o)
		}
	}
	if p.file != "" {
		c.APIVersion, c.Kind = "", ""
		d := &decoder{places: p}
		if !d.decodeFile(content, c) {
			return nil, p.errors
		}
	}
	for _, o := range append(p.fromEnviron(environ), flags...) {
		if !o.Default {
			p.override(c, o)
		}
	}
	c.validate(p)
	if len(p.errors) > 0 {
		return nil, p.sorted()
	}
	return c, nil
}

const envPrefix = "CRMIRROR_"

// EnvName returns the variable that sets a key: "repository.auth.sshKeyFile" is
// CRMIRROR_REPOSITORY_AUTH_SSH_KEY_FILE.
func EnvName(path string) string {
	var b strings.Builder
	b.WriteString(envPrefix)
	upper := true // the letter before was one
	for _, r := range path {
		isUpper := 'A' <= r && r <= 'Z'
		if isUpper && !upper || r == '.' {
			b.WriteByte('_')
		}
		if r != '.' {
			b.WriteString(strings.ToUpper(string(r)))
		}
		upper = isUpper
	}
	return b.String()
}

// serviceLink matches the variables that Kubernetes itself sets in a pod when a
// Service is called crmirror, or crmirror-something.
var serviceLink = regexp.MustCompile(`_SERVICE_(HOST|PORT(_.*)?)$|_PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?$`)

// fromEnviron returns the overrides in environ, in the order of Paths, and
// reports variables that would be ours but set nothing. CRMIRROR_CONFIG names
// the file and is read by whoever calls Load. An empty variable counts as unset.
func (p *places) fromEnviron(environ []string) []Override {
	known := map[string]string{EnvName("select"): "select", envPrefix + "CONFIG": ""}
	order := append(Paths(), "select")
	var names []string
	for _, path := range order {
		known[EnvName(path)] = path
		names = append(names, EnvName(path))
	}
	var overrides []Override
	for _, variable := range environ {
		name, value, _ := strings.Cut(variable, "=")
		if !strings.HasPrefix(name, envPrefix) || value == "" || serviceLink.MatchString(name) {
			continue
		}
		path, ok := known[name]
		if !ok {
			p.errors = append(p.errors, &Error{Source: name, Msg: "sets no key of the configuration" + Suggest(name, names)})
			continue
		}
		if path != "" {
			overrides = append(overrides, Override{Path: path, Value: value, Source: name})
		}
	}
	slices.SortStableFunc(overrides, func(a, b Override) int { return slices.Index(order, a.Path) - slices.Index(order, b.Path) })
	return overrides
}

// override lays one value over c.
func (p *places) override(c *Config, o Override) {
	p.set[o.Path] = place{source: o.Source}
	if o.Path == "select" {
		c.Select = []Rule{{Matcher: Matcher{Resources: splitList(o.Value)}}}
		p.forget("select")
		return
	}
	v := reflect.ValueOf(c).Elem()
	for key := range strings.SplitSeq(o.Path, ".") {
		ok := v.Kind() == reflect.Struct
		if ok {
			v, ok = fieldNamed(v, key)
		}
		if !ok {
			p.report(o.Path, "is no key of the configuration")
			return
		}
	}
	if v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.String {
		p.forget(o.Path)
		v.Set(reflect.ValueOf(splitList(o.Value)))
		return
	}
	if v.Kind() == reflect.Slice || v.Kind() == reflect.Struct && v.Type() != durationType {
		p.report(o.Path, "cannot be set as one value")
		return
	}
	if err := setScalar(v, o.Value); err != nil {
		p.report(o.Path, "%v", err)
	}
}

// forget drops the lines of a list's items, since the list was replaced.
func (p *places) forget(path string) {
	for set := range p.set {
		if strings.HasPrefix(set, path+"[") {
			delete(p.set, set)
		}
	}
}

func splitList(s string) []string {
	var list []string
	for item := range strings.SplitSeq(s, ",") {
		if item = strings.TrimSpace(item); item != "" {
			list = append(list, item)
		}
	}
	return list
}

// readKey reads the redaction key; a line's end is not part of it.
func readKey(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, errors.New(unreadable(err))
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, maxKeyBytes))
	if err != nil {
		return nil, errors.New(unreadable(err))
	}
	key := strings.TrimRight(string(content), "\r\n")
	if len(key) < minKeyBytes {
		return nil, fmt.Errorf("holds %d bytes, want at least %d; make one with: openssl rand -hex 32", len(key), minKeyBytes)
	}
	return []byte(key), nil
}

const (
	minKeyBytes = 16
	maxKeyBytes = 64 << 10
)
