package watches

import (
	"fmt"
	"path"
	"path/filepath"
	"strings"
)

// Inputs says what decides whether a run is due, in addition to the object, the content
// and the environment.
type Inputs struct {
	// Env are patterns of [path.Match] for names of variables. A variable that matches one is an
	// input even if it is not by default; one that matches a pattern after "-" is not. The
	// last pattern that matches wins.
	Env []string
	// Files are absolute patterns of [filepath.Match] for files and directories. A file that
	// matches a pattern after "-" is no input even if the content names it.
	Files []string
}

func inputsFields() []field[Inputs] {
	return []field[Inputs]{
		{Field{"env", typeList, "[]", false,
			"Environment variables whose change starts a run, in addition to the default ones: names or patterns such as APP_*. A leading - " +
				"excludes variables. The last match wins."},
			setInputsEnv},
		{Field{"files", typeList, "[]", false,
			"Files and directories whose change starts a run, in addition to the role or playbook: paths or patterns such as /etc/app/*. " +
				"Relative paths start at the directory of the watches file. A leading - excludes files, even those that the role or playbook " +
				"names."},
			setInputsFiles},
	}
}

func setInputsEnv(c *decoding, in *Inputs, a at) {
	c.elements(a, func(element at) {
		pattern, ok := c.string(element)
		if !ok {
			return
		}
		name := strings.TrimPrefix(pattern, "-")
		if _, err := path.Match(name, ""); err != nil || name == "" || strings.ContainsAny(name, "=/ ") {
			c.error(element, fmt.Sprintf("%q is neither the name of an environment variable nor a pattern", excerpt(pattern)),
				`write for example "APP_*", or "-APP_BUILD_*" to exclude variables`)
			return
		}
		in.Env = append(in.Env, pattern)
	})
}

func setInputsFiles(c *decoding, in *Inputs, a at) {
	c.elements(a, func(element at) {
		pattern, ok := c.string(element)
		if !ok {
			return
		}
		path, not := strings.CutPrefix(pattern, "-")
		if _, err := filepath.Match(path, ""); err != nil || path == "" || strings.HasPrefix(path, "~") {
			c.error(element, fmt.Sprintf("%q is neither a path nor a pattern", excerpt(pattern)),
				`write for example "/etc/app/*", or "files/*" relative to the watches file; "~" is not expanded`)
			return
		}
		if path = filepath.Clean(absolute(c.directory(), path)); not {
			path = "-" + path
		}
		in.Files = append(in.Files, path)
	})
}
