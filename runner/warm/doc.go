// Package warm keeps an interpreter that has imported what every Ansible run
// imports first, and from which runs are forked: most of what a run costs is
// starting Python, for ansible-runner, for ansible-playbook and for each module.
//
// It knows how such a fork server is started, checked, replaced and ended. What
// a run is, package runner knows, and how its processes are ended, package
// supervise: a forked run is the installed ansible-runner and ansible-playbook
// with the same arguments, environment and files as one that is executed. The
// server's program is in the directory python.
//
// Linux only.
package warm
