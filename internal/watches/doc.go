// Package watches reads watches.yaml: the list that says which kinds are
// watched and which role or playbook answers for each. It resolves paths,
// applies defaults and reports every problem with its line and column.
//
// It is a leaf: it starts nothing, talks to no cluster, and imports no other
// package of Rolewright.
package watches
