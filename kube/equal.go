package kube

import (
	"bytes"
	"math/big"
)

// Equal tells whether two files have the same content, however they are
// formatted. Numbers are compared by value: 1 and 1.0 are one number to an API
// server. What cannot be decoded equals only the same bytes.
func Equal(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	x, err := Decode(a)
	if err != nil {
		return false
	}
	y, err := Decode(b)
	return err == nil && EqualValues(x.Object, y.Object)
}

// EqualValues compares decoded values as Equal does. It takes what Decode and JSON decoders return.
func EqualValues(a, b any) bool {
	switch x := a.(type) {
	case map[string]any:
		y, ok := b.(map[string]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for k, v := range x {
			w, ok := y[k]
			if !ok || !EqualValues(v, w) {
				return false
			}
		}
		return true
	case []any:
		y, ok := b.([]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for i := range x {
			if !EqualValues(x[i], y[i]) {
				return false
			}
		}
		return true
	case int64:
		if y, ok := b.(float64); ok {
			return equalNumbers(x, y)
		}
	case float64:
		if y, ok := b.(int64); ok {
			return equalNumbers(y, x)
		}
	}
	return a == b
}

// equalNumbers compares exactly: beyond 2^53 a float64 cannot tell integers apart.
func equalNumbers(i int64, f float64) bool {
	return new(big.Float).SetInt64(i).Cmp(big.NewFloat(f)) == 0
}
