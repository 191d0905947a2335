// Package bulk is everything of restore and verify that touches the API server, one
// request at a time: what it serves, what it has, what one may do, and plain writes of whole
// objects. What is to be written, and when, is decided elsewhere. It waits for nothing, WaitServed
// aside, and sends nothing twice.
//
// Errors are those of package apply, found with errors.Is and errors.As:
//
//   - *apply.Rejected: refused, with the server's words. Retry tells whether the same request
//     can succeed later, and RetryAfter when, if the server said so.
//   - apply.ErrExists: a create met an object of that name.
//   - apply.ErrMoved: the object is not the one any more that uid and resourceVersion say.
//   - apply.ErrUncertain: no answer came, or one that does not say what became of the write.
//     Read the object before anything else.
//   - apply.ErrNotFound: of a read, the server said that there is no such object.
//
// No message has the body of an object, nor a value of those that Options.Shaped names.
package bulk
