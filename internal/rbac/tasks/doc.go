// Package tasks reads roles and playbooks, and says which requests to the API
// server their tasks make: which kinds, which verbs, and at which lines it
// cannot know that.
//
// Nothing is run and no template is evaluated: what a task does is read from
// its module and arguments, with variables only where the files say their
// values. The package does not know which resources there are, nor RBAC; kinds
// are told as they are written.
package tasks
