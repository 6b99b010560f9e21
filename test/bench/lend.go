package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// lendEnv names the directory in which the stubs write where the kubeconfigs of
// their runs are.
const lendEnv = "FAKERUNNER_LEND"

// access is the access to the API server that a run got. The run is in
// progress until end is called.
type access struct {
	file       string // contains the path of the lent kubeconfig
	kubeconfig string
	config     *rest.Config
}

// end lets the run end.
func (a *access) end() error { return os.Remove(a.file) }

// startLending starts an operator whose runs lend their access, up to concurrent of them
// at a time, and makes a namespace for their objects. There are no other objects.
func (b *bench) startLending(ctx context.Context, namespace string, concurrent int) error {
	if err := b.removeThings(ctx); err != nil {
		return err
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if err := b.client.Create(ctx, ns); err != nil {
		return fmt.Errorf("create a namespace: %w", err)
	}
	b.namespaces = append(b.namespaces, ns)
	if err := os.MkdirAll(b.lent(), 0o700); err != nil {
		return err
	}
	return b.startOperator(ctx, lendEnv+"="+b.lent(),
		fmt.Sprintf("MAX_CONCURRENT_RECONCILES_THING_BENCH_ROLEWRIGHT_TEST=%d", concurrent))
}

func (b *bench) lent() string { return filepath.Join(b.dir, "lent") }

// borrow creates an object and returns the access of its run.
func (b *bench) borrow(ctx context.Context, namespace, name string) (*access, error) {
	if err := b.create(ctx, namespace, name); err != nil {
		return nil, err
	}
	return b.nextAccess(ctx)
}

// nextAccess waits for the next run to begin, and returns its access.
func (b *bench) nextAccess(ctx context.Context) (*access, error) {
	a := &access{}
	var failure error
	err := wait(ctx, "a run to begin", func() bool {
		var entries []os.DirEntry
		if entries, failure = os.ReadDir(b.lent()); failure != nil {
			return true
		}
		for _, e := range entries {
			if file := filepath.Join(b.lent(), e.Name()); !b.seen[file] && !strings.HasSuffix(file, ".tmp") {
				a.file = file
				return true
			}
		}
		return false
	})
	if err := errors.Join(err, failure); err != nil {
		return nil, err
	}
	b.seen[a.file] = true
	path, err := os.ReadFile(a.file)
	if err != nil {
		return nil, fmt.Errorf("read where the kubeconfig of a run is: %w", err)
	}
	a.kubeconfig = string(path)
	if a.config, err = clientcmd.BuildConfigFromFlags("", a.kubeconfig); err != nil {
		return nil, fmt.Errorf("read the kubeconfig of a run: %w", err)
	}
	return a, nil
}

// endLending lets all runs end that are in progress.
func (b *bench) endLending() error {
	entries, err := os.ReadDir(b.lent())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		if err := os.Remove(filepath.Join(b.lent(), e.Name())); err != nil {
			return err
		}
	}
	return nil
}
