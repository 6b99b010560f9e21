// Package libraries looks for what modules of Kubernetes need beside Ansible.
package libraries

import (
	"bytes"
	"context"
	_ "embed" // the program that asks Python
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/rolewright/rolewright/internal/text"
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
	cmd := exec.CommandContext(ctx, python, append([]string{"-c", program}, collections...)...)
	cmd.Env = ansibleenv.WithHome(environ, os.TempDir())
	// Nothing that the program leaves behind may keep us waiting for its end of the pipe.
	cmd.WaitDelay = time.Second
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return Libraries{}, fmt.Errorf("ask %s for its packages: %w: %s", python, err, text.Clip(strings.TrimSpace(text.Plain(stderr.String())), 256))
	}
	var l Libraries
	if err := json.Unmarshal(out, &l); err != nil {
		return Libraries{}, fmt.Errorf("ask %s for its packages: %w", python, err)
	}
	return l, nil
}
