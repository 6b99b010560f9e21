// Package history checks the invariants of the operator (docs/reliability.md)
// on what was recorded while it ran: the API server's audit log, the ledger of
// its supervising processes, the log of the runs themselves, of the client and
// of the driver. A check is a pure function of a directory: a stored history
// can be checked again at any time, by a better checker too.
//
// It knows the layout of status.ansible and Kubernetes' audit events, and
// nothing of who injects the faults. What was not recorded is indeterminate and
// never a violation: every rule here says no more than its evidence does.
package history
