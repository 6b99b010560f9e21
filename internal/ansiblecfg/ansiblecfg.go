// Package ansiblecfg reads Ansible's configuration file, as far as the operator has to know what it says
// (https://docs.ansible.com/ansible/latest/reference_appendices/config.html).
package ansiblecfg

import (
	"os"
	"path/filepath"
	"strings"
)

// Home is the configuration file in a home directory.
func Home(dir string) string { return filepath.Join(dir, ".ansible.cfg") }

// System is the configuration file of the machine.
const System = "/etc/ansible/ansible.cfg"

// Defaults is the section [defaults] of the first of the files that can be read, and the
// directory from which its relative paths count. A directory stands for the ansible.cfg in it.
func Defaults(files ...string) (settings map[string]string, dir string) {
	for _, path := range files {
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			path = filepath.Join(path, "ansible.cfg")
		}
		data, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		settings, section := map[string]string{}, ""
		for line := range strings.Lines(string(data)) {
			line = strings.TrimSpace(line)
			if strings.HasPrefix(line, "[") {
				section = line
			}
			if key, value, ok := strings.Cut(line, "="); ok && section == "[defaults]" {
				value, _, _ = strings.Cut(value, " ;") // a comment
				settings[strings.TrimSpace(key)] = strings.TrimSpace(value)
			}
		}
		return settings, filepath.Dir(path)
	}
	return nil, ""
}
