// Package tasks reads roles and playbooks, and lists the requests to the API server that are literal in their tasks,
// templates and manifests: module, apiVersion and kind. It lists the places of all other requests as not known, with file
// and line: a record of runs contains those requests.
//
// It runs nothing and evaluates no expression. It does not know RBAC, or which resources exist; it returns kinds as written.
package tasks
