package apply

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

const (
	maxMessage = 1000 // bytes of the server's words that are shown
	maxValue   = 100  // bytes of one quoted value in them
	ellipsis   = "…"
)

// hidden are the texts that no message may show.
type hidden []string

// hide collects the values at the shaped paths of an object, and those of a Secret.
func hide(shaped *fieldpath.Set, objects ...map[string]any) hidden {
	var h hidden
	for _, obj := range objects {
		if shaped != nil {
			for _, path := range each(shaped) {
				if v, ok := lookup(obj, path); ok {
					h.add(v)
				}
			}
		}
		if obj["apiVersion"] == "v1" && obj["kind"] == "Secret" {
			h.add(obj["data"])
			h.add(obj["stringData"])
		}
	}
	// A value that is part of another one goes after it.
	slices.SortFunc(h, func(a, b string) int { return len(b) - len(a) })
	return slices.Compact(h)
}

// add hides a value and all below it, in each form in which it may be quoted.
func (h *hidden) add(v any) {
	switch t := v.(type) {
	case nil, bool:
	case map[string]any:
		for _, item := range t {
			h.add(item)
		}
	case []any:
		for _, item := range t {
			h.add(item)
		}
	case string:
		h.text(t)
		if plain, err := base64.StdEncoding.DecodeString(t); err == nil {
			h.text(string(plain))
		}
	default:
		h.text(fmt.Sprint(t))
	}
}

func (h *hidden) text(s string) {
	if s == "" {
		return
	}
	quoted := strconv.Quote(s)
	inJSON, _ := json.Marshal(s)
	for _, form := range []string{s, quoted[1 : len(quoted)-1], string(inJSON[1 : len(inJSON)-1])} {
		*h = append(*h, form)
	}
}

// words returns what the server said, field by field where it does.
func (h hidden) words(s metav1.Status) string {
	if s.Details == nil || len(s.Details.Causes) == 0 || hasCause(s, metav1.CauseTypeUnexpectedServerResponse) {
		return h.cut(s.Message)
	}
	var parts []string
	for _, c := range s.Details.Causes {
		if strings.Contains(c.Message, "some validation rules were not checked") {
			continue // it only says that there may be more
		}
		part := c.Message
		if c.Field != "" && c.Field != "<nil>" {
			part = c.Field + ": " + part
		}
		parts = append(parts, part)
	}
	if len(parts) == 0 {
		return h.cut(s.Message)
	}
	return h.cut(strings.Join(parts, "; "))
}

// cut makes a text fit to be shown.
//
// Invariant: what is hidden is taken out before anything is cut, so that no part of it
// is left (TestMessages).
func (h hidden) cut(text string) string {
	for _, s := range h {
		text = strings.ReplaceAll(text, s, "[hidden]")
	}
	text = withoutBodies(text)
	if len(text) > maxMessage {
		text = strings.ToValidUTF8(text[:maxMessage], "") + ellipsis
	}
	return text
}

// withoutBodies takes the values out of messages of validation that are objects, lists, or long.
func withoutBodies(text string) string {
	const before = "alue: " // "Invalid value: ", "Duplicate value: "
	var out strings.Builder
	for {
		i := strings.Index(text, before)
		if i < 0 {
			break
		}
		i += len(before)
		out.WriteString(text[:i])
		text = text[i:]
		if n := bodyLength(text); n > 0 {
			out.WriteString(ellipsis)
			text = text[n:]
		}
	}
	out.WriteString(text)
	return out.String()
}

// bodyLength returns how many bytes of a text are a value that is not to be shown.
func bodyLength(text string) int {
	switch {
	case strings.HasPrefix(text, `"`):
		quoted, err := strconv.QuotedPrefix(text)
		if err != nil {
			return len(text)
		}
		if plain, err := strconv.Unquote(quoted); err != nil || utf8.RuneCountInString(plain) > maxValue || strings.HasPrefix(plain, "{") || strings.HasPrefix(plain, "[") {
			return len(quoted)
		}
	case strings.HasPrefix(text, "{"), strings.HasPrefix(text, "["):
		decoder := json.NewDecoder(strings.NewReader(text))
		var body json.RawMessage
		if decoder.Decode(&body) != nil {
			return len(text)
		}
		return int(decoder.InputOffset())
	case strings.HasPrefix(text, "map["):
		return len(text) // where it ends cannot be told
	}
	return 0
}
