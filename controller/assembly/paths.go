package assembly

import (
	"path/filepath"
	"strings"
)

const envCollectionsPath = "ANSIBLE_COLLECTIONS_PATH"

// RolesDirs returns the directories where Ansible finds roles that no watch names: those in
// ANSIBLE_ROLES_PATH, else the documented defaults.
func RolesDirs(lookupEnv func(string) (string, bool)) []string {
	return searchPath(lookupEnv, []string{"ANSIBLE_ROLES_PATH"},
		"~/.ansible/roles:/usr/share/ansible/roles:/etc/ansible/roles")
}

// CollectionsDirs returns the directories where Ansible finds collections: those in the variables,
// else the documented defaults.
func CollectionsDirs(lookupEnv func(string) (string, bool)) []string {
	// Before ansible-core 2.19 the plural counts too.
	return searchPath(lookupEnv, []string{envCollectionsPath, envCollectionsPath + "S"},
		"~/.ansible/collections:/usr/share/ansible/collections")
}

// searchPath splits the first of the variables that is set, else the default.
// Like Ansible, it replaces a tilde with the home directory.
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
