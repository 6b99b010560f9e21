// Package contentcopy copies the content of an operator, its roles and playbooks,
// so that runs go on with it while the files that it was made of are changed.
//
// It knows files and directories. It does not know when a copy is made, and what is
// run from it.
package contentcopy
