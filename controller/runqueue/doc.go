// Package runqueue decides which of the due runs starts next. It has one order over all
// kinds, limits how many runs there are at a time, and slows down runs because of a
// changed role or environment.
//
// It knows classes, kinds and names of objects. It does not know why a run is due, and
// does not start runs: its callers ask for a place, and give it back.
package runqueue
