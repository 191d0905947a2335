package main

import "testing"

func TestNear(t *testing.T) {
	for host, want := range map[string]bool{
		"https://127.0.0.1:6443":             true,
		"https://10.96.0.1:443":              true,
		"https://[fd00::1]:443":              true,
		"localhost:8080":                     true,
		"https://203.0.113.7:6443":           false,
		"https://api.prod-eu1.example.com":   false,
		"https://api.prod-eu1.example.com:8": false,
		"":                                   false,
	} {
		if got := near(host); got != want {
			t.Errorf("near(%q) = %t, want %t", host, got, want)
		}
	}
}
