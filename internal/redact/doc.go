// Package redact hides secret values in text, by value: the values that its
// [Masker] knows are replaced in everything that a run prints, no matter which
// process prints it.
//
// It knows text and values, but not where they come from. It does not replace
// no_log: a value that a task changes before it prints it (reversed, hashed, hex,
// in other words) is another value.
package redact
