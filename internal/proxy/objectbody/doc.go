// Package objectbody reads the metadata of an object from the body of a request
// or an answer, in every encoding that a Kubernetes API server accepts, and puts
// an owner mark into it. Apart from the mark, the API server decodes the body as if
// it were unchanged.
//
// It is pure: bytes in, bytes out. It knows encodings and how API servers decode
// them. It does not know HTTP, owners, or which object must be marked.
//
// # What is kept
//
// JSON is spliced: every byte of the object outside the changed value stays, so
// that the spelling of numbers, the order of keys and duplicates survive. Protobuf and
// CBOR keep the bytes of every other field. YAML that is not JSON is replaced by
// the JSON into which an API server converts it, which is YAML too; the package
// checks that the API server reads both alike.
//
// # Patches
//
// The body of a server-side apply is an object, and may create it. Every other patch
// changes an existing object: how the mark is added depends on the stored object
// and on the other changes of the patch.
package objectbody
