package rawjson

import (
	"encoding/json"
	"testing"
)

// TestEach compares with what encoding/json makes of the same text.
func TestEach(t *testing.T) {
	for _, text := range []string{
		`{}`, `[]`, ` { } `, `{"a":1}`, `[1,"2",[3],{"4":5},null]`, ` { "a" : "}\"" , "b" : [ "]" ] } `, `{"a":{"b":"\\"}}`,
		``, `1`, `{`, `[`, `{]`, `[}`, `{"a"}`, `{"a":}`, `{"a":1,}`, `[1,]`, `[1 2]`, `[1`, `[1,`, `{"a":1`, `{"a":1}}`, `[] x`, `{a:1}`, `{"a":{}`, `["a`,
	} {
		var want, got []string
		var object map[string]json.RawMessage
		var list []json.RawMessage
		whole := true
		switch {
		case json.Unmarshal([]byte(text), &object) == nil:
		case json.Unmarshal([]byte(text), &list) == nil:
			for _, item := range list {
				want = append(want, string(item))
			}
		default:
			whole = false
		}
		err := Each([]byte(text), func(name, value []byte) error {
			if name == nil {
				got = append(got, string(value))
				return nil
			}
			var key string
			if err := json.Unmarshal(name, &key); err != nil || string(object[key]) != string(value) {
				if whole {
					t.Errorf("%s: member %s is %s", text, name, value)
				}
			}
			delete(object, key)
			return nil
		})
		if (err == nil) != whole {
			t.Errorf("%s: %v", text, err)
		}
		if !whole {
			continue
		}
		if len(object) > 0 || len(got) != len(want) {
			t.Errorf("%s: left %v; got %q, want %q", text, object, got, want)
		}
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("%s: got %q, want %q", text, got, want)
			}
		}
	}
}
