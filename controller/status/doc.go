// Package status turns what is known about the runs of an object into the
// object's status: ansible-operator's conditions Running, Successful and Failure,
// the kstatus conditions Ready, Reconciling and Stalled, and the summary under
// status.ansible.
//
// All functions are pure: they take the status that was read and return the new
// status. They never change their arguments, and keep what the package does not
// own. The caller writes the difference. The package knows neither clients nor
// runs; it is a leaf.
package status
