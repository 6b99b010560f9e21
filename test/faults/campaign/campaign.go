package campaign

import (
	"context"
	_ "embed" // makes the forked ansible-runner the scripted one
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rolewright/rolewright/test/testenv"
)

// Options are the options of a campaign.
type Options struct {
	// Rolewright is the operator's binary, built with the tag failpoint.
	Rolewright string
	// Runner is the scripted ansible-runner; empty for the real one in PATH.
	Runner string
	// Forked makes a fork server start the runner: the real Ansible is imported, and checked.
	Forked bool
	// Command makes the watches run the runner as their command, without Ansible.
	Command bool
	// Dir is the directory for the histories. It exists.
	Dir string
	// Kubeconfig and AuditLog belong to a control plane that nothing else uses.
	Kubeconfig, AuditLog string
	// SoakRuns is how many runs the workload of [SoakPlan] makes.
	SoakRuns int
}

// forks tells whether a fork server starts the runs: the scripted ones, or the real ones.
func (o Options) forks() bool { return o.Forked || o.Runner == "" }

//go:embed sitecustomize.py
var sitecustomize []byte

// Campaign carries out plans on one control plane. It is safe for concurrent
// use.
type Campaign struct {
	opts   Options
	config *rest.Config
	client client.WithWatch
	// project is the directory with watches.yaml and roles; bin is first in the PATH of operators.
	project, bin string
	crds         []*apiextensionsv1.CustomResourceDefinition
	// prefix is the prefix of the namespaces' names; a number follows.
	prefix string
	serial *atomic.Int64
	// sampler looks at the processes of all runs.
	sampler *sampler
}

// group is the API group of the campaign's kinds.
const group = "faults.rolewright.test"

// The kinds: a Thing has a finalizer, a Plain has none.
const (
	kindThing = "Thing"
	kindPlain = "Plain"
)

func gvk(kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: group, Version: "v1", Kind: kind}
}

// New installs the campaign's kinds.
func New(ctx context.Context, opts Options) (*Campaign, error) {
	config, err := clientcmd.BuildConfigFromFlags("", opts.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig of the control plane: %w; call `make faults`", err)
	}
	config.QPS, config.UserAgent = -1, "campaign"
	scheme := runtime.NewScheme()
	if err := errors.Join(apiextensionsv1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("register kinds: %w", err)
	}
	c := &Campaign{opts: opts, config: config, serial: &atomic.Int64{}}
	c.prefix = fmt.Sprintf("f-%04x-", rand.N(1<<16))
	if c.client, err = client.NewWithWatch(config, client.Options{Scheme: scheme}); err != nil {
		return nil, fmt.Errorf("connect to the control plane: %w", err)
	}
	if err := c.content(); err != nil {
		return nil, err
	}
	for _, kind := range []string{kindThing, kindPlain} {
		if err := c.install(ctx, kind); err != nil {
			return nil, err
		}
	}
	c.sampler = newSampler()
	return c, nil
}

// With returns the same campaign with another operator, whose histories go to dir.
// The copy must not be closed.
func (c *Campaign) With(rolewright, dir string) *Campaign {
	other := *c
	other.opts.Rolewright, other.opts.Dir = rolewright, dir
	return &other
}

// Close removes the kinds.
func (c *Campaign) Close() error {
	c.sampler.close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var errs []error
	for _, crd := range c.crds {
		err := c.client.Delete(ctx, crd)
		if err == nil { // the next campaign must not find a CRD that is being deleted
			err = wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
				return apierrors.IsNotFound(c.client.Get(ctx, client.ObjectKeyFromObject(crd), crd)), nil
			})
		}
		errs = append(errs, client.IgnoreNotFound(err))
	}
	return errors.Join(errs...)
}

// content writes the project that the operators serve.
func (c *Campaign) content() error {
	c.project, c.bin = filepath.Join(c.opts.Dir, "project"), filepath.Join(c.opts.Dir, "bin")
	watched := watchesFile
	if c.opts.Command {
		watched = strings.ReplaceAll(strings.ReplaceAll(watched, "\n    role: work", ""), "role: work",
			fmt.Sprintf("command: [%q]\n  inheritEnv: [%s, FAULTS_OPERATOR]", c.opts.Runner, truthVariable))
	}
	for path, text := range map[string]string{
		"watches.yaml":              watched,
		"roles/work/tasks/main.yml": roleTasks,
	} {
		path = filepath.Join(c.project, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return fmt.Errorf("write the project: %w", err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return fmt.Errorf("write the project: %w", err)
		}
	}
	if err := os.MkdirAll(c.bin, 0o700); err != nil {
		return fmt.Errorf("link the runner: %w", err)
	}
	if c.opts.Runner == "" {
		return nil
	}
	target, link := c.opts.Runner, filepath.Join(c.bin, "ansible-runner")
	if c.opts.Forked {
		var err error
		if target, err = exec.LookPath("ansible-runner"); err != nil {
			return fmt.Errorf("link the runner: %w", err)
		}
		if err := os.WriteFile(filepath.Join(c.bin, "sitecustomize.py"), sitecustomize, 0o600); err != nil {
			return fmt.Errorf("link the runner: %w", err)
		}
	}
	if err := os.Remove(link); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("link the runner: %w", err)
	}
	if err := os.Symlink(target, link); err != nil {
		return fmt.Errorf("link the runner: %w", err)
	}
	return nil
}

// finalizer is the finalizer of Things.
const finalizer = group + "/finalizer"

// Variables with the prefix FAULTS_ mark the processes of one start of an operator.
const watchesFile = `- version: v1
  group: ` + group + `
  kind: Thing
  role: work
  secretVars: [canary]
  inputs: {env: [-FAULTS_*]}
  finalizer:
    name: ` + finalizer + `
    role: work
- version: v1
  group: ` + group + `
  kind: Plain
  role: work
  secretVars: [canary]
  inputs: {env: [-FAULTS_*]}
`

// roleTasks makes the real runner do what the fake one does: bring the
// object's ConfigMap to what the spec says.
const roleTasks = `- ansible.builtin.set_fact:
    whole: "{{ vars['_faults_rolewright_test_thing'] | default(vars['_faults_rolewright_test_plain']) }}"
- ansible.builtin.set_fact:
    behaviour: "{{ (whole.spec.fake.finalizer | default({})) if whole.metadata.deletionTimestamp is defined else (whole.spec.fake | default({})) }}"
- kubernetes.core.k8s:
    state: present
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata:
        namespace: "{{ ansible_operator_meta.namespace }}"
        name: "{{ ansible_operator_meta.name }}{{ '-final' if whole.metadata.deletionTimestamp is defined else '' }}"
      data:
        spec: "{{ whole.spec.value }}"
- ansible.builtin.set_fact:
    time: "{{ behaviour.sleep | default('0s') }}"
- ansible.builtin.command: "sleep {{ (time[:-2] | int / 1000) if time.endswith('ms') else time }}"
- ansible.builtin.fail:
    msg: "the object asked for it, with {{ whole.spec.canary }} and {{ whole.spec.canary | b64encode }} and {{ whole.spec.canary | urlencode }}"
  when: behaviour.outcome | default('') != ''
`

func (c *Campaign) install(ctx context.Context, kind string) error {
	g := gvk(kind)
	crd := testenv.Definition(g)
	if err := c.client.Create(ctx, crd); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("install the kind %s: %w", kind, err)
	}
	c.crds = append(c.crds, crd)
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(g)
	return poll(ctx, time.Minute, func() error { return c.client.List(ctx, list) })
}

// poll calls do until it returns nil, for up to patience. It returns the last
// error.
func poll(ctx context.Context, patience time.Duration, do func() error) error {
	deadline := time.Now().Add(patience)
	for {
		err := do()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("after %s: %w", patience, err)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
