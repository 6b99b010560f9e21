// Package rbac lists the permissions that an operator needs: its own, those that
// its roles and playbooks need as far as their tasks show (package tasks), and
// those for the recorded calls of runs. It writes them as RBAC rules that are no
// wider than the calls need.
//
// It knows verbs and resources, and sends nothing to an API server: a [Catalog]
// lists the resources.
package rbac
