package apply

import (
	"errors"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

var errNothingLeft = errors.New("nothing is left of the object")

// Advance returns content with the fields of set as want has them, and without those of
// remove: what a change that landed makes of what was agreed before. The arguments are
// not modified; the result shares values with them.
func Advance(content, want map[string]any, set, remove *fieldpath.Set) (map[string]any, error) {
	var out any = content
	if remove != nil {
		out = without(out, want, remove)
	}
	if set != nil {
		var err error
		if out, err = overlay(out, want, set, nil); err != nil {
			return nil, err
		}
	}
	object, ok := out.(map[string]any)
	if !ok {
		return nil, errNothingLeft
	}
	return object, nil
}

// Extract returns the fields of set alone, with the keys of the list items that they lie in.
func Extract(content map[string]any, set *fieldpath.Set) (map[string]any, error) {
	return Advance(map[string]any{}, content, set, nil)
}
