// Package vault reads what ansible-vault has encrypted, with the passwords that
// the runs of this operator have, so that the values can be recognised where a
// run prints them. It decides nothing about runs: what it cannot read is for
// Ansible to complain about.
package vault
