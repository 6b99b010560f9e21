package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
)

// contentPaths are the flags that say where roles and collections are. A flag
// takes precedence over the environment variable.
type contentPaths struct{ rolesPath, collectionsPath string }

func (p *contentPaths) bindFlags(fs *pflag.FlagSet) {
	fs.StringVar(&p.rolesPath, "ansible-roles-path", "", "Where to look for roles; overrides ANSIBLE_ROLES_PATH.")
	fs.StringVar(&p.collectionsPath, "ansible-collections-path", "", "Where to look for collections; overrides ANSIBLE_COLLECTIONS_PATH.")
}

// overrides returns the environment entries that the flags set.
func (p *contentPaths) overrides() []string {
	var entries []string
	if p.rolesPath != "" {
		entries = append(entries, envRolesPath+"="+p.rolesPath)
	}
	if p.collectionsPath != "" {
		entries = append(entries, envCollectionsPath+"="+p.collectionsPath)
	}
	return entries
}

// lookupEnv looks a name up in the flags first, and then in the process's environment.
func (p *contentPaths) lookupEnv(name string) (string, bool) {
	for _, entry := range p.overrides() {
		if value, ok := strings.CutPrefix(entry, name+"="); ok {
			return value, true
		}
	}
	return os.LookupEnv(name)
}

// setAnsiblePaths sets the environment variables to the values of the two flags: the watches
// file and Ansible read them from there.
func (p *contentPaths) setAnsiblePaths(log logr.Logger) error {
	for _, entry := range p.overrides() {
		name, value, _ := strings.Cut(entry, "=")
		if err := os.Setenv(name, value); err != nil {
			return fmt.Errorf("set environment variable %s: %w", name, err)
		}
		log.Info("Set the environment variable", "envVar", name, "value", value)
	}
	return nil
}
