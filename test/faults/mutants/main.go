package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/rolewright/rolewright/test/faults/campaign"
)

type options struct {
	campaign.Options
	// root is the module's directory, and commit its current commit.
	root, commit string
	// only restricts the mutants to those whose names contain one of these words.
	only string
	// generate is how many plans are generated from the workloads.
	generate int
	// parallel is how many plans are carried out at a time.
	parallel int
	// least is the share of mutants that must be caught.
	least float64
	apply bool
	build bool
	// keep leaves the histories of mutants in the directory.
	keep bool
}

func main() {
	var o options
	flag.StringVar(&o.root, "root", ".", "the directory of the module, a git repository: its last commit is what is tested")
	flag.StringVar(&o.Runner, "fakerunner", "bin/fakerunner", "the fake ansible-runner")
	flag.StringVar(&o.Dir, "out", "", "keep the tree, results and histories in this directory, and resume what it has; a temporary one if empty, which is removed")
	flag.StringVar(&o.only, "only", "", "try the mutants only of which the name contains one of these words, separated by commas")
	flag.IntVar(&o.generate, "generate", 150, "try so many plans that are made of the workloads, after the fixed ones")
	flag.IntVar(&o.parallel, "parallel", 6, "how many plans are carried out at a time")
	flag.Float64Var(&o.least, "least", 0.95, "the share of mutants that has to be caught")
	flag.BoolVar(&o.apply, "apply", false, "only check that each patch applies")
	flag.BoolVar(&o.build, "build", false, "only look whether each mutant compiles")
	flag.BoolVar(&o.keep, "keep", false, "keep the binaries and histories of mutants, below -out")
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
	temporary, err := o.complete()
	if err != nil {
		return err
	}
	if temporary {
		defer func() { err = errors.Join(err, os.RemoveAll(o.Dir)) }()
	}
	if !o.apply && !o.build {
		if err := o.snapshot(ctx); err != nil {
			return err
		}
	}
	known, err := load(filepath.Join(o.root, "test/faults/mutants/testdata"))
	if err != nil {
		return err
	}
	chosen := o.choose(known)
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
	return o.hunt(ctx, chosen)
}

// hunt tries the mutants that have no result yet: first those of plain runs, then
// those of forked ones.
func (o options) hunt(ctx context.Context, chosen []mutant) error {
	path := filepath.Join(o.Dir, "results.jsonl")
	results, err := campaign.ReadResults[result](path)
	if err != nil {
		return err
	}
	left := slices.DeleteFunc(chosen, func(m mutant) bool {
		return slices.ContainsFunc(results, func(r result) bool { return r.Name == m.Name })
	})
	if o.Rolewright, err = (mutant{Name: "sound"}).build(ctx, o.root, filepath.Join(o.Dir, "sound")); err != nil {
		return err
	}
	if len(results) > 0 {
		fmt.Printf("%d seeded bugs were tried before, %d are left\n", len(results), len(left))
	}
	n := len(left)
	for _, forked := range []bool{false, true} {
		mine := slices.DeleteFunc(slices.Clone(left), func(m mutant) bool { return m.Forked != forked })
		if len(mine) == 0 || ctx.Err() != nil || err != nil {
			continue
		}
		err = o.tryAll(ctx, mine, forked, func(r result) error {
			fmt.Println(r)
			results, n = append(results, r), n-1
			return campaign.AddResult(path, r)
		})
	}
	return errors.Join(ctx.Err(), err, report(o, results, n))
}

// tryAll tries mutants until it is stopped, all with plain runs or all with forked ones.
func (o options) tryAll(ctx context.Context, mutants []mutant, forked bool, done func(result) error) (err error) {
	opts := o.Options
	opts.Forked, opts.Dir = forked, filepath.Join(o.Dir, fmt.Sprintf("sound-forked-%t", forked))
	if err := os.MkdirAll(opts.Dir, 0o700); err != nil {
		return err
	}
	c, err := campaign.New(ctx, opts)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	s, err := newSuite(ctx, c, o, forked)
	for _, m := range mutants {
		if err != nil || ctx.Err() != nil {
			break
		}
		r := s.try(ctx, o, m)
		if ctx.Err() != nil {
			break
		}
		err = done(r)
	}
	return err
}

// snapshot makes a copy of the last commit, or uses an existing copy, so that
// a resumed hunt tests a single tree.
func (o *options) snapshot(ctx context.Context) error {
	tree, file := filepath.Join(o.Dir, "tree"), filepath.Join(o.Dir, "commit")
	commit, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		script := `set -e; commit=$(git rev-parse HEAD); mkdir -p "$1"; git archive "$commit" | tar -x -C "$1"; echo "$commit" > "$2"`
		cmd := exec.CommandContext(ctx, "bash", "-o", "pipefail", "-c", script, "-", tree, file)
		cmd.Dir = o.root
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("copy the last commit: %w\n%s", err, out)
		}
		commit, err = os.ReadFile(file)
	}
	if err != nil {
		return err
	}
	o.root, o.commit = tree, strings.TrimSpace(string(commit))
	return nil
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

// complete makes paths absolute, and creates the directory.
func (o *options) complete() (temporary bool, err error) {
	o.Kubeconfig, o.AuditLog = os.Getenv("KUBECONFIG"), os.Getenv("ROLEWRIGHT_TEST_AUDIT_LOG")
	if o.Dir == "" {
		temporary = true
		if o.Dir, err = os.MkdirTemp("", "rolewright-mutants-"); err != nil {
			return false, fmt.Errorf("make a directory: %w", err)
		}
	}
	for _, path := range []*string{&o.root, &o.Runner, &o.Dir} {
		if *path, err = filepath.Abs(*path); err != nil {
			return temporary, fmt.Errorf("find out where that is: %w", err)
		}
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return temporary, fmt.Errorf("make a directory: %w", err)
	}
	return temporary, nil
}
