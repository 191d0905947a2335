// Package bulk is everything of restore and verify that touches the API server, one
// request at a time: what it serves, what it has, what one may do, and plain writes.
// What is to be written, and when, is decided elsewhere.
package bulk
