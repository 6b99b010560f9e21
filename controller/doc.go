// Package controller watches one kind per entry of watches.yaml and keeps each
// of its objects reconciled by Ansible runs.
//
// [Setup] adds the watched kinds to a manager. The package waits until a kind is
// installed, serves it while it is, and waits again after the kind is gone; no
// kind waits for another. Each watch has a reconciler, whose Reconcile is a list
// of phases, which happen in order. schedule.go decides whether a run is due.
// Package runner executes runs; controller/status defines the form of the status.
package controller
