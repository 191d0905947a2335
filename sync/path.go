package sync

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/crmirror/crmirror/kube"
)

// MarkerName is the file at the top of the mirrored path that says whose tree
// this is and how it was written. See [Tree].
const MarkerName = ".crmirror.yaml"

const (
	clusterRoot    = "cluster"    // cluster-scoped objects
	namespacesRoot = "namespaces" // one folder per namespace
	fileExt        = ".yaml"

	maxSegment = 255 // bytes in one name on ext4, XFS, APFS and NTFS
	maxName    = maxSegment - len(fileExt)

	// cutMark separates a cut name from its digest. Escaping never produces it,
	// so a cut name cannot be taken for a whole one.
	cutMark   = '~'
	cutDigest = 16 // bytes of SHA-256, written as 32 lower-case hex digits
)

// errForeignPath is why a path is not one that PathOf writes.
var errForeignPath = errors.New("not a path of an object")

// PathOf returns the slash path of an object's file below the mirrored path:
// "cluster/<plural>.<group>/<name>.yaml" or
// "namespaces/<ns>/<plural>.<group>/<name>.yaml". The key needs a resource (of
// at most 63 bytes, as any API server demands) and a name.
//
// Invariant: no two keys share a path, not even on a file system that ignores
// case, and no path holds a name that some file system cannot carry. Kept by
// escape; guarded by FuzzPath and TestPathsDiffer.
func PathOf(k kube.Key) string {
	file := cut(escape(k.Name), maxName) + fileExt
	if k.Namespace == "" {
		return clusterRoot + "/" + resourceFolder(k) + "/" + file
	}
	return namespacesRoot + "/" + namespaceFolder(k) + "/" + resourceFolder(k) + "/" + file
}

// KeyOf returns the key that a path names. It accepts exactly what PathOf
// writes; anything else below the mirrored path is somebody else's file and an
// error. Where a name was too long for a file system, isCut is true and the
// fields that the path does not hold whole (Namespace, Group, Name) are empty:
// the content names them, see [KeyOfFile].
func KeyOf(path string) (key kube.Key, isCut bool, err error) {
	parts := strings.Split(path, "/")
	namespaced := len(parts) == 4 && parts[0] == namespacesRoot
	if !namespaced && (len(parts) != 3 || parts[0] != clusterRoot) {
		return kube.Key{}, false, fmt.Errorf("%s: %w", path, errForeignPath)
	}
	folder, file := parts[len(parts)-2], parts[len(parts)-1]

	var cutName, cutGroup, cutNamespace bool
	name, ok := strings.CutSuffix(file, fileExt)
	if ok {
		key.Name, cutName, ok = unescapeSegment(name, maxName)
	}
	if ok {
		key.Resource, key.Group, cutGroup, ok = parseResourceFolder(folder)
	}
	if ok && namespaced {
		key.Namespace, cutNamespace, ok = unescapeSegment(parts[1], maxSegment)
	}
	if !ok {
		return kube.Key{}, false, fmt.Errorf("%s: %w", path, errForeignPath)
	}
	return key, cutName || cutGroup || cutNamespace, nil
}

// KeyOfFile returns the key of a file from its path and from what its content
// names: the group of its apiVersion, its namespace and its name. It is an
// error if the two disagree: such a file is not ours.
func KeyOfFile(path, group, namespace, name string) (kube.Key, error) {
	k, _, err := KeyOf(path)
	if err != nil {
		return kube.Key{}, err
	}
	content := kube.Key{Group: group, Resource: k.Resource, Namespace: namespace, Name: name}
	if name == "" || PathOf(content) != path {
		return kube.Key{}, fmt.Errorf("%s: its content names another object, %s", path, content)
	}
	return content, nil
}

// CompareKeys orders keys by resource, namespace and name, for slices.SortFunc.
func CompareKeys(a, b kube.Key) int {
	// Not cmp.Or, which compares all four: sorting by keys is much of a large cycle.
	if c := cmp.Compare(a.Resource, b.Resource); c != 0 {
		return c
	}
	if c := cmp.Compare(a.Group, b.Group); c != 0 {
		return c
	}
	if c := cmp.Compare(a.Namespace, b.Namespace); c != 0 {
		return c
	}
	return cmp.Compare(a.Name, b.Name)
}

func namespaceFolder(k kube.Key) string { return cut(escape(k.Namespace), maxSegment) }

// resourceFolder joins plural and group with the first dot; a dot within the
// plural, which no API server allows, is escaped so that the split stays certain.
func resourceFolder(k kube.Key) string {
	folder := strings.ReplaceAll(escape(k.Resource), ".", "%2E")
	if k.Group != "" {
		folder += "." + escape(k.Group)
	}
	return cut(folder, maxSegment)
}

// parseResourceFolder splits a folder's name; a cut one does not hold its
// group, but always its plural, which any API server limits to 63 bytes.
func parseResourceFolder(folder string) (plural, group string, isCut, ok bool) {
	head, tail, dotted := strings.Cut(folder, ".")
	plural, ok = unescape(head)
	if !ok || plural == "" {
		return "", "", false, false
	}
	if isCutSegment(folder, maxSegment) {
		return plural, "", true, dotted
	}
	if dotted {
		if group, ok = unescape(tail); !ok || group == "" {
			return "", "", false, false
		}
	}
	k := kube.Key{Resource: plural, Group: group}
	return plural, group, false, resourceFolder(k) == folder
}

// unescapeSegment reads a namespace or object name back from its segment.
func unescapeSegment(seg string, limit int) (name string, isCut, ok bool) {
	if isCutSegment(seg, limit) {
		return "", true, true
	}
	name, ok = unescape(seg)
	return name, false, ok && name != "" && len(seg) <= limit && escape(name) == seg
}

// escape writes a name so that every file system, git and kustomize carry it:
// bytes outside [a-z0-9.-] become %XX with upper-case digits, and so does one
// byte of a name that means something to them.
func escape(name string) string {
	special := isSpecial(name)
	if plain(name) && !special && name[0] != '.' && name[len(name)-1] != '.' {
		return name
	}
	var b strings.Builder
	b.Grow(len(name) + 2)
	for i := range len(name) {
		c := name[i]
		hidden := c == '.' && (i == 0 || i == len(name)-1) // ".git", "..", "a." on Windows
		if !plainByte(c) || hidden || special && i == 0 {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// plain tells whether a name is not empty and needs no escape for its bytes.
func plain(name string) bool {
	for i := range len(name) {
		if !plainByte(name[i]) {
			return false
		}
	}
	return name != ""
}

func plainByte(c byte) bool {
	return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '.' || c == '-'
}

// isSpecial reports names that are taken: kustomize's own file, and the device
// names which Windows reserves with and without an extension.
func isSpecial(name string) bool {
	if name == "kustomization" {
		return true
	}
	stem, _, _ := strings.Cut(name, ".")
	switch stem {
	case "con", "prn", "aux", "nul":
		return true
	}
	return len(stem) == 4 && (stem[:3] == "com" || stem[:3] == "lpt") && '0' <= stem[3] && stem[3] <= '9'
}

// unescape undoes the %XX of escape, and only those that escape could have
// written; whether a plain byte should have been escaped is the caller's check.
func unescape(s string) (string, bool) {
	if plain(s) {
		return s, true
	}
	var b strings.Builder
	b.Grow(len(s))
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c != '%' {
			if !plainByte(c) {
				return "", false
			}
			b.WriteByte(c)
			continue
		}
		if i+2 >= len(s) {
			return "", false
		}
		hi, lo := strings.IndexByte(upperHex, s[i+1]), strings.IndexByte(upperHex, s[i+2])
		if hi < 0 || lo < 0 {
			return "", false
		}
		b.WriteByte(byte(hi<<4 | lo))
		i += 2
	}
	return b.String(), true
}

const upperHex = "0123456789ABCDEF"

// cut shortens an escaped segment to the limit: its first bytes, never half an
// escape, then the mark and a digest of the whole segment.
func cut(escaped string, limit int) string {
	if len(escaped) <= limit {
		return escaped
	}
	sum := sha256.Sum256([]byte(escaped))
	n := limit - 1 - 2*cutDigest
	if i := strings.LastIndexByte(escaped[:n], '%'); i > n-3 {
		n = i
	}
	return escaped[:n] + string(cutMark) + hex.EncodeToString(sum[:cutDigest])
}

// isCutSegment reports whether seg has the form that cut writes.
func isCutSegment(seg string, limit int) bool {
	i := strings.IndexByte(seg, cutMark)
	if i < 0 || len(seg) > limit || len(seg) < limit-2 {
		return false
	}
	digest := seg[i+1:]
	if len(digest) != 2*cutDigest || strings.Trim(digest, "0123456789abcdef") != "" {
		return false
	}
	_, ok := unescape(seg[:i])
	return ok
}
