package config

import (
	"fmt"
	"reflect"
	"strings"
)

// fieldNamed returns the field of a struct with that key.
func fieldNamed(v reflect.Value, key string) (reflect.Value, bool) {
	for i := range v.NumField() {
		name, inline := keyOf(v.Type().Field(i))
		if inline {
			if f, ok := fieldNamed(v.Field(i), key); ok {
				return f, true
			}
		} else if name != "" && name == key {
			return v.Field(i), true
		}
	}
	return reflect.Value{}, false
}

// fieldNames returns the keys of a struct, in its order.
func fieldNames(v reflect.Value) []string {
	var names []string
	for i := range v.NumField() {
		name, inline := keyOf(v.Type().Field(i))
		if inline {
			names = append(names, fieldNames(v.Field(i))...)
		} else if name != "" {
			names = append(names, name)
		}
	}
	return names
}

func keyOf(f reflect.StructField) (name string, inline bool) {
	name, rest, _ := strings.Cut(f.Tag.Get("yaml"), ",")
	return name, rest == "inline"
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// Paths lists every key that holds a single value or a list of texts, in the
// order of Config: what a variable or a flag can set.
func Paths() []string { return pathsOf("", reflect.ValueOf(Config{})) }

func pathsOf(prefix string, v reflect.Value) []string {
	var paths []string
	for _, name := range fieldNames(v) {
		f, _ := fieldNamed(v, name)
		path := join(prefix, name)
		switch {
		case f.Kind() == reflect.Struct:
			paths = append(paths, pathsOf(path, f)...)
		case f.Kind() == reflect.Slice && f.Type().Elem().Kind() == reflect.Struct:
			// A list of rules has no form as one line.
		default:
			paths = append(paths, path)
		}
	}
	return paths
}

// Suggest returns ` (did you mean "x"?)` for the nearest of the known words, or "" if none is near.
func Suggest(word string, known []string) string {
	best, least := "", 3
	for _, k := range known {
		n := distance(strings.ToLower(word), strings.ToLower(k))
		if n < least && n < len(k) {
			best, least = k, n
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf(" (did you mean %q?)", best)
}

// distance is the number of letters to insert, delete or replace between two words.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
