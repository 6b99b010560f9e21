// Package extravars turns a custom resource into the extra variables of a run.
// Names, order and conversion are ansible-operator's, but nothing in the result is
// executed, templated, decrypted or taken for a setting by Ansible.
//
// It is pure and a leaf: it reads an object as decoded JSON and the variables of a
// watch, and returns the literal content of env/extravars. It knows neither clients
// nor runs nor where the file is written.
//
// # Trusted and untrusted variables
//
// The author of the operator writes the variables of a watch and of its finalizer.
// They pass unchanged, including templates, vault texts and reserved names. Anyone
// who may write the object controls everything that comes from it: so its strings
// are marked unsafe, names that Ansible reserves never become variables, and maps
// that look like Ansible's own markers arrive as plain maps. Of variables that a hook
// in Go returns, the names are the author's; the values may come from the object, and
// are treated like it. A [Notice] tells about everything that was left out or changed;
// it stays readable in the variable that holds the whole spec.
package extravars
