// Package dependent watches the objects that belong to custom resources and
// says which owner has to run again because another client changed one of them.
//
// It watches only metadata, with one watch per resource. It keeps a small record
// of each owned object and nothing of other objects, so its cost depends on what
// is owned, not on the size of the cluster. The API proxy tells it what a run
// writes ([Run]), so that a run's own writes do not start another run.
//
// Metadata does not always tell what a write has changed. If it does not, the
// package reads and compares the two versions of the object. If they cannot be
// read, the change counts, since it is better to run an owner once too often.
//
// The package does not start runs or mark objects: the API proxy sets the owner
// marks, and the controller decides about runs.
package dependent
