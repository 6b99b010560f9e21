// Package vault decrypts ansible-vault texts with the passwords that the runs of
// this operator use, so that the values can be masked when a run prints them. It
// decides nothing about runs: if it cannot read a text, Ansible reports the error.
package vault
