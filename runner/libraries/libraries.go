// Package libraries looks for what modules of Kubernetes need beside Ansible.
package libraries

import (
	"context"
	_ "embed" // the program that asks Python
	"encoding/json"
	"fmt"

	"github.com/rolewright/rolewright/runner/internal/ansibleenv"
)

// Libraries are what modules of Kubernetes need beside Ansible; empty if they
// are not found.
type Libraries struct {
	// Client is the version of the Python package kubernetes, Core that of the
	// collection kubernetes.core that is found first.
	Client, Core string
}

// program prints the versions as JSON. argv: directories of collections.
//
//go:embed libraries.py
var program string

// Find asks the Python interpreter that modules on localhost use.
// collections are where Ansible looks for collections before the directories of
// Python's own packages. environ is the environment, with a home directory that
// need not exist.
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
