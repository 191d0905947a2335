// Package apply is everything of two-way mode that touches the API server, one
// object at a time: reading an object with its owners (Read, Ownership), the types
// of kinds (Schemas), and writing one judged change (Writer). What is to be written, and
// when, is decided elsewhere.
//
// A change is written in one request, whichever of these fits:
//
//   - A forced server-side apply of the fields that crmirror owns and those that
//     change, when the server's own merge makes exactly the wanted object of
//     it. It leaves an Apply entry, by which a later run can tell what landed.
//   - One JSON patch, for all else: fields are removed, items are put between others,
//     a value changes its kind, the type is not known, or managedFields cannot be
//     merged at this version. What it sets belongs to crmirror's Update entry.
//
// Every removal goes as a patch, also of fields that only our Apply entry owns. Leaving them out
// of the payload would remove them too, but only if neither our Update entry nor
// anybody else co-owns them, and that is one more thing to get wrong.
//
// Where managedFields have entries of a version of the kind that lacks a field which the
// object has by now, no server-side apply works, nobody's; the server answers 500 "field not
// declared in schema". A patch does work, and is what is sent then, but the server records no owner of
// what it sets until somebody rewrites those entries (TestStaleVersion).
//
// Invariant: every request carries uid and resourceVersion of the state that it was
// decided on, so the server refuses it once anything moved (TestHammer).
package apply
