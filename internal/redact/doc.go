// Package redact hides secret values in text, by value: whatever a run prints,
// and whoever prints it, the values that its [Masker] knows are replaced.
//
// It knows text and values, and nothing of where either comes from. It is no
// substitute for no_log: a value that a task changes before it prints it
// (reversed, hashed, hex, in other words) is another value.
package redact
