// Command demo shows Rolewright at work on the example operator: it installs
// the example's kind in the cluster of KUBECONFIG, starts the operator, and
// follows a Memcached object from its creation over a change to its end, with
// the tasks as they run. It leaves nothing behind.
//
// `make demo` runs it on the embedded control plane.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func main() {
	binary := flag.String("rolewright", "bin/rolewright", "the operator's binary")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if err := run(ctx, *binary); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		if errors.Is(err, context.Canceled) {
			os.Exit(130)
		}
		os.Exit(1)
	}
}

// run is the whole demonstration, in order.
func run(ctx context.Context, binary string) (err error) {
	d, err := prepare(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.cleanUp()) }()

	d.screen.chapter("Install the kind Memcached and start the operator")
	if err := d.install(ctx); err != nil {
		return err
	}
	if err := d.startOperator(ctx, binary); err != nil {
		return err
	}
	d.screen.chapter("Create a Memcached of 3: the role makes a Deployment of it")
	if err := d.createSample(ctx); err != nil {
		return err
	}
	if err := d.follow(ctx, "created", 1); err != nil {
		return err
	}
	if err := d.showObjects(ctx); err != nil {
		return err
	}
	d.screen.chapter("Change the size to 2: one more run, and only what differs is changed")
	if err := d.resize(ctx, 2); err != nil {
		return err
	}
	if err := d.follow(ctx, "changed", 2); err != nil {
		return err
	}
	if err := d.showObjects(ctx); err != nil {
		return err
	}
	d.screen.chapter("Delete it: the finalizer's role runs, and then it is gone")
	if err := d.remove(ctx); err != nil {
		return err
	}
	d.showRuns()
	return nil
}

// demo is the state of one demonstration.
type demo struct {
	screen   screen
	client   client.Client
	scratch  string
	operator *operator
	runs     []lastRun
}

func prepare(ctx context.Context) (*demo, error) {
	path := os.Getenv("KUBECONFIG")
	if path == "" {
		return nil, errors.New("KUBECONFIG is not set; call `make demo`, which starts a control plane and sets it")
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	c, err := client.New(cfg, client.Options{})
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	scratch, err := os.MkdirTemp("", "rolewright-demo-")
	if err != nil {
		return nil, fmt.Errorf("make a scratch directory: %w", err)
	}
	return &demo{screen: newScreen(os.Stdout), client: c, scratch: scratch}, ctx.Err()
}

// cleanUp stops the operator and removes what the demonstration made; it has a
// time of its own, since it also runs after an interrupt.
func (d *demo) cleanUp() error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	errs := []error{d.operator.stop()}
	errs = append(errs, d.uninstall(ctx))
	return errors.Join(append(errs, os.RemoveAll(d.scratch))...)
}
