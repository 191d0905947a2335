// Package informer is the cluster side of the mirror: which kinds there are,
// what objects they have, and what becomes of them, told to a Sink as it is
// seen. It decides nothing about files or commits.
//
// A Fleet runs one informer for each resource and namespace scope that the rules
// select. The CustomResourceDefinitions, watched by an informer of their own,
// say which ones: a kind installed later is listed at once, a removed one is
// told with KindGone and its informer ends.
//
// An informer is client-go's Reflector over a store of our own, without the
// queue (DeltaFIFO) and the cache of a SharedInformer, for three reasons:
//
//   - Events arrive synchronously, in order, on one goroutine. A Sink that blocks
//     slows down exactly that watch, and nothing piles up in memory.
//   - The Reflector calls Replace only with a complete listing. That is the proof
//     without which an absent object is not a deleted one.
//   - An object is judged and encoded the moment it is decoded, also during the
//     initial stream. What stays is its name: about 120 bytes, no
//     managedFields, no content.
//
// Servers that offer it stream the initial listing (WatchList); from others it is
// read in pages, each of which is garbage before the next one is asked for.
//
// A server that hangs is noticed in three ways: every request but a watch has a
// timeout; a watch must answer, and its initial stream must go on, within that
// same timeout, and it ends by its own deadline some minutes later; a dead TCP
// connection is found by HTTP/2 pings, which client-go sends after 30 seconds
// without traffic and gives 15 seconds to be answered.
package informer
