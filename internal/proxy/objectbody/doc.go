// Package objectbody reads the metadata of objects from bodies of requests and
// answers in JSON, puts an owner mark into the body of an object, and finds the
// values of Secrets.
//
// It is pure: bytes in, bytes out. It does not know HTTP, owners, or which object
// must be marked.
package objectbody
