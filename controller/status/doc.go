// Package status turns what is known about the runs of an object into the
// object's status: ansible-operator's conditions Running, Successful and Failure,
// the kstatus conditions Ready, Reconciling and Stalled, and the summary under
// status.ansible.
//
// Everything here is pure: a function takes a status, as it was read, and
// returns the status as it should be; it never changes its argument, and what
// it does not own comes back as it was. The caller writes the difference.
// The package knows neither clients nor runs; it is a leaf.
package status
