// Package fingerprint identifies the inputs of a run: what an object asks for, and
// the content that the run executes. Two runs with the same fingerprint do the same.
//
// It reads objects and files, and keeps only digests. It is a leaf.
package fingerprint
