// Package runqueue decides which of the runs that are due starts next: one order over all
// kinds, limits of how many there are at a time, and a slower start of runs that a new
// role or environment asks for.
//
// It knows classes, kinds and names of objects. It does not know why a run is due, and
// makes none: its callers ask for a place, and give it back.
package runqueue
