// Package dependent watches the objects that belong to custom resources and
// says which owner has to run again because another client changed one of them.
//
// It watches metadata only, one resource at a time, and keeps a small record of
// each owned object and nothing of the others: what it costs follows what is
// owned, not what the cluster holds. It is told by the API proxy what a run
// writes ([Session]), so that a run is not answered with another one.
//
// The metadata does not always say what a write has changed. Where it does not,
// the two versions of the object are read and compared, one object at a time;
// where they cannot be read, the change counts. An owner that runs once too
// often is the lesser harm.
//
// The package knows no runs but by name, starts none, and marks nothing: the
// marks on objects are the proxy's, the decision to run is the controller's.
package dependent
