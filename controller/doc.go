// Package controller watches one kind per entry of watches.yaml and keeps each
// of its objects reconciled by Ansible runs.
//
// [Setup] adds the watched kinds to a manager. A kind is looked for until it is
// installed, served while it is, and looked for again when it goes; no kind
// waits for another. Per kind there is a reconciler, whose Reconcile is a list
// of phases: what happens to an object, in order. What a run is, the package
// leaves to runner; what a status looks like, to controller/status; whether
// anything is to be done at all, it decides in schedule.go.
package controller
