// Package objectbody reads the metadata of an object from the body of a request
// or an answer, in every encoding that a Kubernetes API server takes, and puts
// an ownership mark into it. What the mark does not touch, the API server
// decodes as if the body had come unchanged.
//
// It is pure: bytes in, bytes out. It knows encodings and how API servers decode
// them. It knows nothing of HTTP, of who owns what, or of which object is to be
// marked.
//
// # What is kept
//
// JSON is spliced: every byte of the object outside the changed value stays, so
// that the spelling of numbers, the order of keys and duplicates survive. Protobuf and
// CBOR keep the bytes of every other field. YAML that is not JSON is replaced by
// the JSON that an API server makes of it, which is YAML too; the package checks
// that the API server reads it the same.
//
// # Patches
//
// Server-side apply carries an object, and may create it. Every other patch
// changes an object that exists: how the mark gets into it depends on what is
// stored and on what else the patch does.
package objectbody
