// Package tasks reads roles and playbooks, and lists the requests to the API
// server that stand literally in their tasks, templates and manifests: module,
// apiVersion and kind. It lists all other requests as not known, with file and
// line: a record of runs contains them.
//
// It runs nothing and evaluates no expression. It does not know RBAC, or which
// resources exist; kinds are returned as written.
package tasks
