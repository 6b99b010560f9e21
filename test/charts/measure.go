package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rolewright/rolewright/test/procs"
	"github.com/rolewright/rolewright/test/testenv"
)

// program is an operator.
type program struct {
	name, path string
	args       []string
}

// phase is what was measured of one part of the life of an object.
type phase struct {
	took, cpu        time.Duration
	requests, writes int
	objects          map[string]any
	conditions       string
	revision         int
}

// result is what was measured of one operator with one project: install, change, idle, deletion.
type result struct {
	program string
	phases  [4]phase
	memory  float64 // MiB
}

// measure has an operator serve an object of the project through its life.
func (b *bench) measure(ctx context.Context, op program, p project) (result, error) {
	r := result{program: op.name}
	gvk := schema.GroupVersionKind{Group: group, Version: "v1", Kind: p.kind}
	if err := b.install(ctx, gvk); err != nil {
		return r, err
	}
	namespace := strings.ToLower(op.name + "-" + p.kind)
	if err := b.makeNamespace(ctx, namespace); err != nil {
		return r, err
	}
	process, err := b.start(ctx, op, p, namespace)
	if err != nil {
		return r, err
	}
	defer process.stop()
	object := &unstructured.Unstructured{Object: map[string]any{"spec": runtime.DeepCopyJSON(p.spec)}}
	object.SetGroupVersionKind(gvk)
	object.SetNamespace(namespace)
	object.SetName("sample")
	steps := []func() error{
		func() error {
			if err := b.client.Create(ctx, object); err != nil {
				return err
			}
			return b.released(ctx, object, "InstallSuccessful")
		},
		func() error { return b.changeSpec(ctx, object, p.change) },
		func() error { return pause(ctx, time.Duration(b.periods)*b.period) },
		func() error {
			if err := b.client.Delete(ctx, object); err != nil {
				return err
			}
			return until(ctx, "the object to be gone", func() bool {
				return apierrors.IsNotFound(b.client.Get(ctx, client.ObjectKeyFromObject(object), object))
			})
		},
	}
	for i, step := range steps {
		if err := b.phase(ctx, &r.phases[i], process, object, step); err != nil {
			return r, fmt.Errorf("%w; the end of the log:\n%s", err, process.tail())
		}
		if i == 2 {
			r.memory = process.memory()
		}
	}
	return r, nil
}

func (b *bench) makeNamespace(ctx context.Context, name string) error {
	return b.client.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name},
	}})
}

// changeSpec changes the spec, and waits for the release of it.
func (b *bench) changeSpec(ctx context.Context, object *unstructured.Unstructured, change map[string]any) error {
	patch, err := json.Marshal(map[string]any{"spec": change})
	if err != nil {
		return err
	}
	if err := b.client.Patch(ctx, object, client.RawPatch("application/merge-patch+json", patch)); err != nil {
		return err
	}
	return b.released(ctx, object, "UpgradeSuccessful")
}

// phase measures one step. What it leaves is looked at when the operator has come to rest.
func (b *bench) phase(ctx context.Context, m *phase, process *process, object *unstructured.Unstructured, step func() error) (err error) {
	cpu, from, began := process.cpu(), b.auditSize(), time.Now()
	if err := step(); err != nil {
		return err
	}
	m.took = time.Since(began)
	// What follows the last write of a status belongs to it, and a period is longer.
	if err := pause(ctx, min(2*time.Second, b.period/2)); err != nil {
		return err
	}
	m.cpu = process.cpu() - cpu
	if m.requests, m.writes, err = b.requests(from); err != nil {
		return err
	}
	if m.objects, m.revision, err = b.left(ctx, object.GetNamespace()); err != nil {
		return err
	}
	current := object.DeepCopy()
	if err := b.client.Get(ctx, client.ObjectKeyFromObject(object), current); err != nil {
		return client.IgnoreNotFound(err)
	}
	m.conditions = conditions(current)
	return nil
}

// released waits for a release with the reason.
func (b *bench) released(ctx context.Context, object *unstructured.Unstructured, reason string) error {
	return until(ctx, "the condition Deployed with the reason "+reason, func() bool {
		current := object.DeepCopy()
		return b.client.Get(ctx, client.ObjectKeyFromObject(object), current) == nil && strings.Contains(conditions(current), "Deployed=True "+reason)
	})
}

// install installs the kind.
func (b *bench) install(ctx context.Context, gvk schema.GroupVersionKind) error {
	crd := testenv.Definition(gvk)
	crd.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(crd)
	if err != nil {
		return err
	}
	if err := b.client.Create(ctx, &unstructured.Unstructured{Object: fields}); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	return until(ctx, "the kind to be served", func() bool {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(gvk)
		return b.client.List(ctx, list) == nil
	})
}

// process is an operator that runs.
type process struct {
	cmd *exec.Cmd
	log string
}

func (b *bench) start(ctx context.Context, op program, p project, namespace string) (*process, error) {
	const probe, metrics = "127.0.0.1:16789", "127.0.0.1:16790"
	o := &process{log: filepath.Join(b.dir, namespace+".log")}
	log, err := os.OpenFile(o.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close() // the process has its own
	o.cmd = exec.Command(op.path, append([]string{"run", "--watches-file=watches.yaml", "--reconcile-period=" + b.period.String(),
		"--health-probe-bind-address=" + probe, "--metrics-bind-address=" + metrics}, op.args...)...)
	o.cmd.Dir, o.cmd.Stdout, o.cmd.Stderr = p.dir, log, log
	o.cmd.Env = append(os.Environ(), "WATCH_NAMESPACE="+namespace, "PATH="+filepath.Dir(op.path)+":"+os.Getenv("PATH"))
	if err := o.cmd.Start(); err != nil {
		return nil, err
	}
	err = until(ctx, op.name+" to be ready", func() bool {
		res, err := http.Get("http://" + probe + "/readyz") // bounded by until
		if err != nil {
			return false
		}
		_ = res.Body.Close()
		return res.StatusCode == http.StatusOK
	})
	if err != nil {
		o.stop()
		return nil, fmt.Errorf("%w; the end of the log:\n%s", err, o.tail())
	}
	return o, pause(ctx, 2*time.Second) // /readyz of the one does not wait for its caches
}

func (o *process) stop() {
	_ = o.cmd.Process.Signal(syscall.SIGTERM)
	_ = o.cmd.Wait()
}

// tail is the end of the log.
func (o *process) tail() string {
	data, _ := os.ReadFile(o.log)
	const much = 4000
	return string(data[max(0, len(data)-much):])
}

// cpu is the time that the process and all its children have taken, those that have ended, too (proc_pid_stat(5)).
func (o *process) cpu() time.Duration {
	var ticks int
	for _, s := range o.stats() {
		ticks += int(s.UTime+s.STime) + s.CUTime + s.CSTime
	}
	const second = 100 // USER_HZ
	return time.Duration(ticks) * time.Second / second
}

// memory is what the process and its children have resident, in MiB.
func (o *process) memory() float64 {
	var bytes int
	for _, s := range o.stats() {
		bytes += s.ResidentMemory()
	}
	return float64(bytes) / (1 << 20)
}

func (o *process) stats() []procfs.ProcStat {
	var all []procfs.ProcStat
	tree, _ := procs.Tree(o.cmd.Process.Pid) // none of one that has ended
	for _, p := range tree {
		if s, err := p.Stat(); err == nil {
			all = append(all, s)
		}
	}
	return all
}

func (b *bench) auditSize() int64 {
	info, err := os.Stat(b.audit)
	if err != nil {
		return 0
	}
	return info.Size()
}

// requests counts those of the operator in the audit log.
func (b *bench) requests(from int64) (all, writes int, err error) {
	f, err := os.Open(b.audit)
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	if _, err := f.Seek(from, io.SeekStart); err != nil {
		return 0, 0, err
	}
	lines := bufio.NewReader(f)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return all, writes, nil // what has no end is of the next phase
		}
		var e struct {
			Stage, Verb, UserAgent string
			User                   struct{ Username string }
		}
		if json.Unmarshal(line, &e) != nil || e.Stage != "ResponseComplete" && e.Stage != "ResponseStarted" ||
			strings.Contains(e.UserAgent, agent) || strings.HasPrefix(e.User.Username, "system:") && e.User.Username != "system:admin" {
			continue
		}
		if e.Stage == "ResponseStarted" && e.Verb != "watch" || e.Stage == "ResponseComplete" && e.Verb == "watch" {
			continue // a watch counts when it begins
		}
		all++
		switch e.Verb {
		case "create", "update", "patch", "delete", "deletecollection":
			writes++
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func until(ctx context.Context, what string, done func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for !done() {
		if pause(ctx, 50*time.Millisecond) != nil {
			return fmt.Errorf("waited in vain for %s", what)
		}
	}
	return nil
}
