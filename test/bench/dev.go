package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// dev saves a role while rolewright dev runs, and measures how long it takes until the
// first task of the next run is executed. Facts are not gathered, as in the Deployments
// that create api makes.
func (b *bench) dev(ctx context.Context) (err error) {
	dir, reached := filepath.Join(b.dir, "project"), filepath.Join(b.dir, "reached")
	binary, err := filepath.Abs(b.opts.binary)
	if err != nil {
		return err
	}
	if err := newProject(ctx, binary, dir); err != nil {
		return err
	}
	save := func(version int) error {
		task := fmt.Sprintf("- name: Note that it is reached\n  ansible.builtin.debug:\n    msg: \"{{ lookup('pipe', 'echo %d >%s') }}\"\n", version, reached)
		return os.WriteFile(filepath.Join(dir, "roles/site/tasks/main.yml"), []byte(task), 0o600)
	}
	if err := save(0); err != nil {
		return err
	}
	cmd := exec.Command(binary, "dev", "--runner-root", filepath.Join(b.dir, "runner"))
	cmd.Dir, cmd.Env = dir, append(os.Environ(), markEnv+"="+b.dir, "ANSIBLE_GATHERING=explicit")
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start rolewright dev: %w", err)
	}
	defer func() {
		stopErr := cmd.Process.Signal(syscall.SIGINT)
		if err = errors.Join(err, stopErr, cmd.Wait()); err != nil {
			err = fmt.Errorf("%w\n%s", err, output.String())
		}
		crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "sites.dev.bench.example.com"}}
		err = errors.Join(err, b.client.Delete(context.WithoutCancel(ctx), crd))
	}()
	took, err := b.untilReached(ctx, reached, save)
	if err != nil {
		return err
	}
	slices.Sort(took)
	fmt.Printf("\n%-58s %10s %10s %10s   %s\n", "figure", "min", "median", "max", "reach / aim")
	fmt.Printf("%-58s %10.2f %10.2f %10.2f   %s\n", fmt.Sprintf("from a saved role to its first task, %d times, s", len(took)),
		took[0], took[len(took)/2], took[len(took)-1], "1")
	return nil
}

// newProject makes a project whose role accepts anything in the object's spec.
func newProject(ctx context.Context, binary, dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"init", "--domain", "bench.example.com", "--name", "bench"},
		{"create", "api", "--group", "dev", "--version", "v1", "--kind", "Site"},
	} {
		cmd := exec.CommandContext(ctx, binary, args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("rolewright %q: %w\n%s", args, err, out)
		}
	}
	return os.RemoveAll(filepath.Join(dir, "roles/site/meta/argument_specs.yml"))
}

// untilReached saves versions of the role, one after the other. It returns for each how many
// seconds it took until the file that the role writes had the version.
func (b *bench) untilReached(ctx context.Context, reached string, save func(version int) error) ([]float64, error) {
	took := make([]float64, 0, b.opts.saved)
	for version := range b.opts.saved + 2 { // the first run starts with the operator, the second one may not be forked
		began := time.Now()
		if version > 0 {
			time.Sleep(time.Second) // people save when the run has ended
			began = time.Now()
			if err := save(version); err != nil {
				return nil, err
			}
		}
		if err := wait(ctx, "the saved role to run", func() bool {
			data, err := os.ReadFile(reached)
			return err == nil && string(data) == fmt.Sprintln(version)
		}); err != nil {
			return nil, err
		}
		info, err := os.Stat(reached)
		if err != nil {
			return nil, err
		}
		if version > 1 {
			took = append(took, info.ModTime().Sub(began).Seconds())
		}
	}
	return took, nil
}
