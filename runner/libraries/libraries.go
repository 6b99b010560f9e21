// Package libraries finds the libraries that the Kubernetes modules need in addition to Ansible.
package libraries

import (
	"context"
	_ "embed" // the program that asks Python
	"encoding/json"
	"fmt"

	"github.com/rolewright/rolewright/runner/internal/ansibleenv"
)

// Libraries has the versions of what the Kubernetes modules need in addition to
// Ansible; a version is empty if the library is not found.
type Libraries struct {
	// Client is the version of the Python package kubernetes, Core the version of
	// the collection kubernetes.core that is found first.
	Client, Core string
}

// program prints the versions as JSON. argv: directories of collections.
//
//go:embed libraries.py
var program string

// Find asks python, the interpreter that modules on localhost use. collections are the
// directories in which Ansible looks for collections before those of Python's own
// packages. environ is the environment; its home directory need not exist.
func Find(ctx context.Context, python string, environ, collections []string) (Libraries, error) {
	out, err := ansibleenv.Output(ctx, environ, python, append([]string{"-c", program}, collections...)...)
	if err != nil {
		return Libraries{}, fmt.Errorf("ask %s for its packages: %w", python, err)
	}
	var l Libraries
	if err := json.Unmarshal(out, &l); err != nil {
		return Libraries{}, fmt.Errorf("ask %s for its packages: %w", python, err)
	}
	return l, nil
}
