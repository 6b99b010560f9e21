// Command faults confronts the operator with faults: it carries out fault plans
// (package plan) on the embedded control plane, checks the invariants on what
// was recorded, and prints a table. It exits with 1 if an invariant was
// violated, if too many plans never reached the point that they wait for, or if no
// plan of a kill matrix reached one of its failpoints.
//
// `make faults` runs everything, `make test` the fixed plans. With -out, a campaign
// can be stopped and resumed: the directory keeps the operator, the plans and
// their results, and the next call continues with the plans that have no result.
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
	"syscall"

	"github.com/rolewright/rolewright/test/faults/campaign"
)

type options struct {
	campaign.Options
	runner   string
	parallel int
	// What to do: plans from files or directories, generated plans, the kill matrix, the soak.
	plans     string
	generate  int
	matrix    bool
	soak      int
	failovers int
	// workloads restricts which plans are generated; repeat is how often all plans are carried out.
	workloads string
	repeat    int
	// save is the directory to save plans in instead of carrying them out.
	save      string
	unreached float64
	keep      bool
}

func main() {
	var o options
	flag.StringVar(&o.Rolewright, "rolewright", "bin/rolewright-failpoint", "the operator's binary, built with -tags failpoint")
	flag.StringVar(&o.Options.Runner, "fakerunner", "bin/fakerunner", "the fake ansible-runner, built of ./test/faults/fakerunner")
	flag.StringVar(&o.runner, "runner", "fake", "which ansible-runner the runs have: fake, forked for the fake one started by a fork server, or real for that of PATH; or command for the fake one as the command of the watches")
	flag.StringVar(&o.plans, "plans", "", "carry out the plans of these files or directories, separated by commas")
	flag.IntVar(&o.generate, "generate", 0, "carry out so many plans that are made of reference runs")
	flag.BoolVar(&o.matrix, "kill-matrix", false, "carry out a plan for each failpoint, way to die and number of replicas")
	flag.IntVar(&o.soak, "soak", 0, "make so many runs under faults, and look whether everything is back to where it was")
	flag.IntVar(&o.failovers, "fail-overs", 0, "take the lead from a replica so often, in plans of ten")
	flag.StringVar(&o.workloads, "workloads", "", "restrict generated plans and the matrix to these workloads, separated by commas")
	flag.IntVar(&o.repeat, "repeat", 1, "carry out each plan so often")
	flag.StringVar(&o.save, "save", "", "write the plans into this directory instead of carrying them out")
	flag.IntVar(&o.parallel, "parallel", 4, "how many plans are carried out at a time")
	flag.Float64Var(&o.unreached, "unreached", 0.05, "the share of plans that may find no chance to do what they are for")
	flag.StringVar(&o.Dir, "out", "", "keep plans, results and histories in this directory, and resume the campaign that it has; a temporary one if empty, which is removed unless there are violations")
	flag.BoolVar(&o.keep, "keep", false, "keep the histories of plans without violations too")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	err := run(ctx, o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "faults:", err)
		stop()
		os.Exit(1)
	}
}

// run does what the options say, and prints the tables.
func run(ctx context.Context, o options) (err error) {
	temporary, err := o.complete()
	if err != nil {
		return err
	}
	o.SoakRuns = o.soak
	k, err := keep(&o)
	if err != nil {
		return fmt.Errorf("resume the campaign: %w", err)
	}
	c, err := campaign.New(ctx, o.Options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	d := newDriver(o, c, k)
	if k.plans == nil {
		plans, err := d.choose(ctx)
		if err != nil {
			return err
		}
		if o.save != "" {
			return save(plans, o.save)
		}
		if err := k.choose(o, plans); err != nil {
			return fmt.Errorf("keep the plans: %w", err)
		}
	}
	if n := len(k.plans) - k.left(); n > 0 {
		fmt.Printf("%d plans were carried out before, %d are left\n", n, k.left())
	}
	d.carryOut(ctx)
	verdict := errors.Join(ctx.Err(), d.report())
	if verdict == nil && temporary {
		return os.RemoveAll(o.Dir)
	}
	if verdict != nil {
		fmt.Printf("\nThe histories are in %s; carry one out again by -plans FILE.\n", o.Dir)
	}
	return verdict
}

// complete makes paths absolute, because operators run in another directory.
func (o *options) complete() (temporary bool, err error) {
	o.Kubeconfig, o.AuditLog = os.Getenv("KUBECONFIG"), os.Getenv("ROLEWRIGHT_TEST_AUDIT_LOG")
	if o.Kubeconfig == "" || o.AuditLog == "" {
		return false, errors.New("there is no control plane with an audit log: call `make faults`")
	}
	switch o.runner {
	case "fake":
	case "forked":
		o.Forked = true
	case "command":
		o.Command = true
	case "real":
		o.Options.Runner = ""
	default:
		return false, fmt.Errorf("-runner %q: fake, forked, command or real expected", o.runner)
	}
	if o.Dir == "" {
		if o.Dir, err = os.MkdirTemp("", "rolewright-faults-"); err != nil {
			return false, err
		}
		temporary = true
	}
	for _, path := range []*string{&o.Rolewright, &o.Options.Runner, &o.Dir} {
		if *path == "" {
			continue
		}
		if *path, err = filepath.Abs(*path); err != nil {
			return temporary, err
		}
	}
	return temporary, os.MkdirAll(o.Dir, 0o700)
}

// names splits a comma-separated list.
func names(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' })
}
