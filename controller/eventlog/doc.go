// Package eventlog writes the job events of a run to the operator's log: the
// structured lines, banners and recaps of ansible-operator, which people read and
// end-to-end tests search for, so their text is part of the contract.
//
// It knows job events and a logger, and nothing of objects, runs or verdicts:
// it judges no event, and what it prints decides nothing. Texts of events are
// partly written by anyone who may create a custom resource; they are bounded and
// lose escape sequences and control characters on their way.
package eventlog
