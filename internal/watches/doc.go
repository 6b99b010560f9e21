// Package watches reads watches.yaml: the list that says which kinds are
// watched and which role or playbook runs for each. It resolves paths,
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
// keys have no effect. Mistakes that ansible-operator ignores are a warning here,
// and an error in strict mode. If ansible-operator has a message for a problem,
// the message here contains it.
//
// # Positions
//
// YAML is parsed after the expansion, but every [Position] is a place in the file
// on disk: a value from the environment is reported at its dollar sign.
package watches
