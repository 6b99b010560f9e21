package runner

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv/parts"
)

// Playbooks are forked even if settings keep modules from being forked or give them another shell, and even without a
// Kubernetes client.
func TestPool_ChecksItsServers(t *testing.T) {
	parts.Ansible(t)
	t.Parallel()
	hides := t.TempDir()
	write(t, filepath.Join(hides, "sitecustomize.py"), "import sys; sys.modules['kubernetes'] = None\n", 0o600)
	for _, set := range []string{"PYTHONPATH=" + hides, "ENABLE_TURBO_MODE=1", "ANSIBLE_PIPELINING=1", "ANSIBLE_EXECUTABLE=/bin/bash", "app.properties=1", "HTTPS_PROXY=http://p.invalid"} {
		t.Run(set, func(t *testing.T) {
			t.Parallel()
			o := Options{Environ: append(os.Environ(), "HOME="+t.TempDir(), set), ForkTimeout: patient}
			o.Warm = NewPool(o, nil)
			t.Cleanup(o.Warm.Close)
			must.Do(t, o.Warm.Wait(t.Context()))
			r := New(o)
			t.Cleanup(r.Close)
			res, err := r.Run(t.Context(), request(t, "success.yml"))
			if err != nil || res.Executor() != ExecutorWarm || res.Unsuited() != "" {
				t.Errorf("error %v, executor %s (%s)", err, res.Executor(), res.Unsuited())
			}
		})
	}
}

// patchOnImport is a sitecustomize.py that runs PATCH when a Python has imported MODULE.
const patchOnImport = `
import importlib.util, sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name != "MODULE":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        ordinary = spec.loader.exec_module
        def exec_module(module):
            ordinary(module)
            PATCH
        spec.loader.exec_module = exec_module
        return spec

sys.meta_path.insert(0, Finder())
`

// A fork server is not used if its Ansible gives another result in a check, and the error names the check.
func TestPool_NamesWhatDiffers(t *testing.T) {
	parts.Ansible(t)
	t.Parallel()
	for _, tt := range []struct{ name, module, patch, differs string }{
		{"a loop", "ansible.executor.task_executor", "old = module.TaskExecutor._get_loop_items; module.TaskExecutor._get_loop_items = lambda self: (old(self) or [])[:1] or None", "self-check: loop"},
		{"a handler", "ansible.playbook.handler", "module.Handler.is_host_notified = lambda self, host: False", "self-check: handler"},
		{"the Kubernetes client", "kubernetes.dynamic.client", "module.DynamicClient.request = None", "self-check: kubernetes.core"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			text := strings.NewReplacer("MODULE", tt.module, "PATCH", tt.patch).Replace(patchOnImport)
			write(t, filepath.Join(dir, "sitecustomize.py"), text, 0o600)
			pool := NewPool(Options{Environ: append(os.Environ(), "HOME="+t.TempDir(), "PYTHONPATH="+dir), ForkTimeout: patient}, nil)
			t.Cleanup(pool.Close)
			err := pool.Wait(t.Context())
			var check *CheckError
			if !errors.As(err, &check) || !slices.Equal(check.Differs, []string{tt.differs}) {
				t.Errorf("error = %v", err)
			}
		})
	}
}
