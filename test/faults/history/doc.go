// Package history checks the invariants of the operator (docs/reliability.md)
// on what was recorded while it ran: the API server's audit log, the ledger of
// its supervisors, and the logs of the runs themselves, of the client and
// of the driver. A check is a pure function of a directory: a stored history
// can be checked again at any time, also by a better checker.
//
// It knows the layout of status.ansible and Kubernetes' audit events, but
// not who injects the faults. What was not recorded is indeterminate, and
// never a violation: no rule here claims more than its evidence shows.
package history
