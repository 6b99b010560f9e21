// Package eventlog writes the job events of a run to the operator's log, in the form
// of ansible-operator's structured lines, banners and recaps. People read them and
// end-to-end tests search for them, so their text is part of the contract.
//
// It knows job events and a logger, but no objects, runs or verdicts: it does not
// judge events, and nothing depends on what it prints. Anyone who may create a custom
// resource can influence texts of events, so their length is limited, and escape
// sequences and control characters are removed.
package eventlog
