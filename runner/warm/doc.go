// Package warm keeps a fork server: a Python process that has imported what every
// Ansible run imports first, and from which runs are forked. Most of the cost of a
// run is the start of Python, for ansible-runner, for ansible-playbook and for each
// module.
//
// The package knows how a fork server is started, checked, replaced and ended.
// Package runner knows what a run is, and package supervise how its processes are
// ended: a forked run is the installed ansible-runner and ansible-playbook with the
// same arguments, environment and files as in a cold start. The server's program is
// in the directory python.
//
// Linux only.
package warm
