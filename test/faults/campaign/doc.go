// Package campaign carries out fault plans: for each one a namespace, an
// operator of one or two replicas behind the fault proxy, a workload, and the
// history of what happened, which package history then checks.
//
// It knows how to start, signal and restart operators and when the world has
// come to rest. What the faults are is in the plan, and what may not happen is
// in history.
package campaign
