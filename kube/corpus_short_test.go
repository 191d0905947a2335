//go:build !long

package kube

const maxCorpusFile = 150 << 10 // bytes
