// Package rbac says which permissions an operator needs: its own, those of its
// roles and playbooks as far as their tasks tell (package tasks), and those of
// the calls that runs were seen to make. It writes them as RBAC rules, none
// wider than what was asked for.
//
// It knows verbs and resources, and asks no API server: a [Catalog] tells which
// resources there are.
package rbac
