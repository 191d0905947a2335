package canon

import "strings"

// What a byte may do in a plain scalar.
const (
	inPlain   = 1 << iota // may stand inside a plain value
	inKey                 // may stand inside a plain key
	startsAny             // may begin one: a letter or a slash
	isDigit               // may begin one that has a witness
	isWitness             // stands in no number, date or other typed scalar that begins with a digit
)

// plainBytes is the class of each byte. Bytes from 0x80 are looked at as runes.
var plainBytes = func() (t [256]uint8) {
	set := func(chars string, class uint8) {
		for i := range len(chars) {
			t[chars[i]] |= class
		}
	}
	const lower, upper = "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	set(lower+upper, inPlain|inKey|startsAny)
	set("0123456789", inPlain|inKey|isDigit)
	set("/", inPlain|inKey|startsAny|isWitness)
	set("._-", inPlain|inKey)
	set(" !\"#$%&'()*+,:;<=>?@[\\]^`{|}~", inPlain)
	// Left out: a-f (hexadecimal), e (exponent), o, x (bases), t, z (timestamps).
	set("ghijklmnpqrsuvwyGHIJKLMNPQRSUVWY", isWitness)
	set("%@()=", isWitness)
	return t
}()

// plain tells whether a value may be written as it is. It is, if no reader
// takes it for anything but a string or for more than one token: it begins with a
// letter, a slash, one or two dashes and a letter, or a digit and then has a
// character that no typed scalar has; it is no reserved word; and it has no
// ": ", " #", control character, or blank at either end.
func plain(s string) bool {
	if s == "" || !plainStart(s) || s[len(s)-1] == ' ' || s[len(s)-1] == ':' {
		return false
	}
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c >= 0x80 {
			return plainRunes(s[i:]) && plainColons(s)
		}
		if plainBytes[c]&inPlain == 0 {
			return false
		}
	}
	return plainColons(s)
}

// plainColons finds what would end a plain scalar in the middle.
func plainColons(s string) bool {
	for i := 1; i < len(s); i++ {
		if s[i] == ' ' && s[i-1] == ':' || s[i] == '#' && s[i-1] == ' ' {
			return false
		}
	}
	return true
}

// plainKey tells whether a map key may be written as it is.
func plainKey(s string) bool {
	if s == "" || !plainStart(s) {
		return false
	}
	for i := range len(s) {
		if plainBytes[s[i]]&inKey == 0 {
			return false
		}
	}
	return true
}

func plainStart(s string) bool {
	switch class := plainBytes[s[0]]; {
	case class&startsAny != 0:
		return !reserved(s)
	case class&isDigit != 0:
		return hasWitness(s)
	case s[0] == '-':
		word := strings.TrimPrefix(s[1:], "-")
		return word != "" && plainBytes[word[0]]&startsAny != 0 && word[0] != '/' && !reserved(word)
	}
	return false
}

func hasWitness(s string) bool {
	for i := 1; i < len(s); i++ {
		if plainBytes[s[i]]&isWitness != 0 {
			return true
		}
	}
	return false
}

// reserved tells whether some reader takes the word for a boolean, a null or a
// float. (One takes an exponent alone, like E5, for a float.)
func reserved(s string) bool {
	if len(s) > 1 && (s[0] == 'e' || s[0] == 'E') && strings.Trim(s[1:], "0123456789_+-") == "" {
		return true
	}
	if len(s) > len("infinity") {
		return false
	}
	switch strings.ToLower(s) {
	case "y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf", "infinity":
		return true
	}
	return false
}

// plainRunes tells whether text that begins with a non-ASCII rune may go on in a
// plain scalar.
func plainRunes(s string) bool {
	for _, r := range s {
		if r < 0x80 {
			if plainBytes[r]&inPlain == 0 {
				return false
			}
		} else if r == 0xFFFD || hidden(r) || wideBlank(r) {
			return false
		}
	}
	return true
}

// wideBlank tells whether a rune looks like a space; shown in double quotes, it is
// at least seen to belong to the text.
func wideBlank(r rune) bool {
	return r == 0xA0 || r == 0x1680 || r >= 0x2000 && r <= 0x200A || r == 0x202F || r == 0x205F || r == 0x3000
}

// hidden tells whether a rune is a control, a line or paragraph separator, a
// mark without width, a direction override, or no character at all. The ranges are written out because those of the
// unicode package change with the Go release, and our bytes must not.
func hidden(r rune) bool {
	switch {
	case unprintable(r), override(r):
		return true
	case r == 0xAD, r == 0x061C, r == 0x180E, r >= 0x200B && r <= 0x200F, r >= 0x2060 && r <= 0x206F,
		r >= 0xFFF9 && r <= 0xFFFB, r >= 0xE0000 && r <= 0xE0FFF:
		return true
	}
	return false
}

// unprintable tells whether YAML forbids the rune outside of escapes, or reads it
// as a line break. Tab and newline are not among them.
func unprintable(r rune) bool {
	switch {
	case r < 0x20:
		return r != '\t' && r != '\n'
	case r >= 0x7F && r <= 0x9F:
		return true
	}
	return r == 0x2028 || r == 0x2029 || r == 0xFEFF || r&0xFFFE == 0xFFFE
}

// override tells whether the rune turns the direction of text around, so that a
// reviewer reads something else than what is there.
func override(r rune) bool {
	return r >= 0x202A && r <= 0x202E || r >= 0x2066 && r <= 0x2069
}
