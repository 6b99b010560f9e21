// Package watches reads watches.yaml: the list that says which kinds are
// watched and which role or playbook answers for each. It resolves paths,
// applies defaults and reports every problem with its line and column.
//
// It is a leaf: it starts nothing, talks to no cluster, and imports no other
// package of Rolewright.
//
// # Compatibility
//
// Files written for operator-framework's ansible-operator load unchanged and
// mean the same: environment references are expanded in the raw text, scalars
// follow YAML 1.1 as sigs.k8s.io/yaml reads it, keys match in any case, unknown
// keys have no effect. What was silent there is a warning here, and an error in
// strict mode. Where a problem has a text in ansible-operator, the message
// contains it.
//
// # Positions
//
// YAML is parsed after the expansion, but every [Position] is one in the file
// as it is on disk: a value that came from the environment is reported at its
// dollar sign.
package watches
