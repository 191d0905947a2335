//go:build long

package kube

const maxCorpusFile = 1 << 30 // bytes: every file
