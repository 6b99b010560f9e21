// Package fingerprint identifies the inputs of a run: what an object asks for,
// and the content that answers. Two runs with one fingerprint do the same.
//
// It reads objects and files and keeps nothing but digests. It is a leaf.
package fingerprint
