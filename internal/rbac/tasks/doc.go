// Package tasks reads roles and playbooks, and lists the requests to the API
// server that stand literally in their tasks, templates and manifests: module,
// apiVersion and kind. Everything else it lists as not known, with file and line:
// a record of runs has the true answer.
//
// Nothing is run and no expression is evaluated. The package does not know which
// resources there are, nor RBAC; kinds are returned as they are written.
package tasks
