// Package campaign carries out fault plans: for each one a namespace, an
// operator of one or two replicas behind the fault proxy, a workload, and the
// history of what happened, which package history then checks.
//
// It knows how to start, signal and restart operators, and when everything has
// come to rest. The plan says what the faults are, and package history what must
// not happen.
package campaign
