package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/rolewright/rolewright/test/faults/campaign"
)

type options struct {
	campaign.Options
	// root is the module's directory.
	root string
	// only restricts the mutants to those of which the names contain one of these words.
	only string
	// most is how many plans are tried per mutant.
	most int
	// parallel is how many mutants are tried at a time.
	parallel int
	// least is the share of mutants that have to be caught.
	least float64
	apply bool
	build bool
	list  bool
	// keep leaves the histories of mutants in the directory.
	keep bool
}

func main() {
	var o options
	flag.StringVar(&o.root, "root", ".", "the directory of the module")
	flag.StringVar(&o.Rolewright, "rolewright", "bin/rolewright-failpoint", "the operator without seeded bugs, built with -tags failpoint")
	flag.StringVar(&o.Runner, "fakerunner", "bin/fakerunner", "the fake ansible-runner")
	flag.StringVar(&o.Dir, "out", "", "keep binaries and histories in this directory; a temporary one if empty, which is removed")
	flag.StringVar(&o.only, "only", "", "try the mutants only of which the name contains one of these words, separated by commas")
	flag.IntVar(&o.most, "plans", 16, "try so many plans per mutant")
	flag.IntVar(&o.parallel, "parallel", 3, "how many mutants are tried at a time")
	flag.Float64Var(&o.least, "least", 0.95, "the share of mutants that has to be caught")
	flag.BoolVar(&o.apply, "apply", false, "only check that each patch applies")
	flag.BoolVar(&o.build, "build", false, "only look whether each mutant compiles")
	flag.BoolVar(&o.keep, "keep", false, "keep the binaries and histories of mutants, below -out")
	flag.BoolVar(&o.list, "list", false, "only print the mutants")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) (err error) {
	known, err := load(filepath.Join(o.root, "test/faults/mutants/testdata"))
	if err != nil {
		return err
	}
	chosen := o.choose(known)
	if o.list {
		for _, m := range chosen {
			fmt.Printf("%s\t%s\t%s\n", m.Name, m.Seen, strings.Join(m.Plans, " "))
		}
		return nil
	}
	temporary, err := o.complete()
	if err != nil {
		return err
	}
	if temporary {
		defer func() { err = errors.Join(err, os.RemoveAll(o.Dir)) }()
	}
	if o.build || o.apply {
		var errs []error
		for _, m := range chosen {
			dir := filepath.Join(o.Dir, m.Name)
			err := m.apply(ctx, o.root, dir)
			if err == nil && o.build {
				_, err = m.build(ctx, o.root, dir)
			}
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	}
	if o.Kubeconfig == "" || o.AuditLog == "" {
		return errors.New("there is no control plane with an audit log: call `make mutants`")
	}
	c, err := campaign.New(ctx, o.Options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	h := &hunt{o: o, sound: c, sounds: map[string]*outcome{}}
	// Plans mostly wait, so that several mutants at a time take little longer than one.
	var all sync.WaitGroup
	turns := make(chan struct{}, max(1, o.parallel))
	for _, m := range chosen {
		turns <- struct{}{}
		all.Go(func() {
			defer func() { <-turns }()
			if ctx.Err() == nil {
				h.try(ctx, m)
			}
		})
	}
	all.Wait()
	return errors.Join(ctx.Err(), h.report())
}

func (o options) choose(all []mutant) []mutant {
	if o.only == "" {
		return all
	}
	var chosen []mutant
	for _, m := range all {
		for word := range strings.SplitSeq(o.only, ",") {
			if strings.Contains(m.Name, word) {
				chosen = append(chosen, m)
				break
			}
		}
	}
	return chosen
}

// complete makes paths absolute, and the directory.
func (o *options) complete() (temporary bool, err error) {
	o.Kubeconfig, o.AuditLog = os.Getenv("KUBECONFIG"), os.Getenv("ROLEWRIGHT_TEST_AUDIT_LOG")
	if o.Dir == "" {
		temporary = true
		if o.Dir, err = os.MkdirTemp("", "rolewright-mutants-"); err != nil {
			return false, fmt.Errorf("make a directory: %w", err)
		}
	}
	for _, path := range []*string{&o.root, &o.Rolewright, &o.Runner, &o.Dir} {
		if *path, err = filepath.Abs(*path); err != nil {
			return temporary, fmt.Errorf("find out where that is: %w", err)
		}
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return temporary, fmt.Errorf("make a directory: %w", err)
	}
	return temporary, nil
}
