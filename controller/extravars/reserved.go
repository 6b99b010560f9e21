package extravars

import (
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// Reserved reports whether a variable of this name would change how Ansible
// works instead of being data to it. Extra variables have the highest
// precedence, so anyone who sets one of these decides for the operator.
//
// The keywords of plays and tasks (name, port, tags, hosts, connection, …) are not
// reserved: Ansible only warns about variables with these names, and specs
// commonly have such keys. namespace, dict, range and now are not reserved either,
// although they hide functions of templates: many specs have a namespace, and only
// a template that calls the function fails.
func Reserved(name string) bool {
	name = plain(name)
	switch name {
	case // Magic variables. Ansible overwrites most of them, some only in a part of the run.
		"vars", "hostvars", "groups", "group_names", "omit", "environment",
		"playbook_dir", "role_path", "role_uuid", "play_hosts", "item", "delegated_vars",
		// Functions of templates: a variable of that name hides them, and every
		// template that calls them fails.
		"lookup", "query", "q",
		// Options of plugins that are variables without the prefix ansible_: the
		// program that the sops lookup starts, the store of the passwordstore lookup
		// and its program, the database of lmdb_kv, the account of httpapi.
		"sops_binary", "passwordstore", "passwordstore_backend", "lmdb_kv_db", "http_login_user", "http_login_password":
		return true
	}
	for _, prefix := range [...]string{"inventory_", "role_name", "become"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	// Connection, become, interpreter, shell, paths and facts. Leading underscores
	// come from Ansible's internal names or from the conversion.
	return strings.HasPrefix(strings.TrimLeft(separated(name), "_"), "ansible_")
}

// plain normalizes a name: it removes surrounding blanks and characters without
// width, and replaces compatibility forms such as full-width letters.
func plain(name string) string {
	ascii := strings.IndexFunc(name, func(r rune) bool { return r > unicode.MaxASCII }) < 0
	if !ascii {
		name = strings.Map(func(r rune) rune {
			if unicode.In(r, unicode.Cf, unicode.Mn) {
				return -1
			}
			return r
		}, norm.NFKC.String(name))
	}
	return strings.TrimSpace(name)
}

// separated writes a name in the form of Ansible's names: ansible-Foo → ansible_foo.
func separated(name string) string {
	return strings.ToLower(strings.NewReplacer("-", "_", " ", "_", ".", "_").Replace(name))
}
