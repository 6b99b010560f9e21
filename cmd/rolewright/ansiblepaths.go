package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-logr/logr"
)

// setAnsiblePaths puts the two flags into the environment, where the watches
// file and Ansible look. A flag beats the variable.
func (o *runOptions) setAnsiblePaths(log logr.Logger) error {
	for _, v := range []struct{ name, value string }{
		{envRolesPath, o.rolesPath}, {envCollectionsPath, o.collectionsPath},
	} {
		if v.value == "" {
			continue
		}
		if err := os.Setenv(v.name, v.value); err != nil {
			return fmt.Errorf("set environment variable %s: %w", v.name, err)
		}
		log.Info("Set the environment variable", "envVar", v.name, "value", v.value)
	}
	return nil
}

// rolesDirs and collectionsDirs are where Ansible finds roles and collections
// that no watch names: with the variable unset, in its documented defaults.
func rolesDirs(lookupEnv func(string) (string, bool)) []string {
	return searchPath(lookupEnv, []string{envRolesPath},
		"~/.ansible/roles:/usr/share/ansible/roles:/etc/ansible/roles")
}

func collectionsDirs(lookupEnv func(string) (string, bool)) []string {
	// Before ansible-core 2.19 the plural counts too.
	return searchPath(lookupEnv, []string{envCollectionsPath, envCollectionsPath + "S"},
		"~/.ansible/collections:/usr/share/ansible/collections")
}

// searchPath splits the first of the variables that is set, or else the
// default, and puts the home directory in the place of a tilde, as Ansible
// does.
func searchPath(lookupEnv func(string) (string, bool), variables []string, otherwise string) []string {
	list := otherwise
	for _, name := range variables {
		if value, _ := lookupEnv(name); value != "" {
			list = value
			break
		}
	}
	home, _ := lookupEnv("HOME")
	var dirs []string
	for _, dir := range filepath.SplitList(list) {
		rest, underHome := strings.CutPrefix(dir, "~/")
		switch {
		case dir == "" || underHome && home == "":
		case underHome:
			dirs = append(dirs, filepath.Join(home, rest))
		default:
			dirs = append(dirs, dir)
		}
	}
	return dirs
}
