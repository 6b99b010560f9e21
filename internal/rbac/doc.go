// Package rbac lists the permissions that an operator needs: its own, those that
// its roles and playbooks need as far as their tasks show it (package tasks), and
// those for the recorded calls of runs. It writes them as RBAC rules, none wider
// than the calls need.
//
// It knows verbs and resources, and asks no API server: a [Catalog] lists the
// resources.
package rbac
