// Package extravars turns a custom resource into the extra variables of a run:
// names, order and conversion as ansible-operator has them, with nothing in the
// result that Ansible would execute, template, decrypt or take for a setting
// of its own.
//
// It is pure and a leaf: it reads an object as decoded JSON and the variables
// of a watch, and returns the literal content of env/extravars. It knows
// neither clients nor runs nor where the file is written.
//
// # What is the author's and what is not
//
// The variables of a watch and of its finalizer are written by the author of
// the operator and pass as they are, templates, vault texts and reserved names
// included. Everything that comes from the object is data of anyone who may write
// it: its strings are marked unsafe, names that Ansible reserves never become
// variables, and maps that look like Ansible's own markers arrive as plain maps.
// Whatever was left out or changed on the way is told in a [Notice], and stays
// readable in the variable that holds the whole spec.
package extravars
