// Package contentcopy copies the content of an operator, its roles and playbooks,
// so that runs can go on with the copy while the original files are changed.
//
// It knows files and directories. It does not know when a copy is made, or what
// runs from it.
package contentcopy
