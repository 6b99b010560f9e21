// Command charts runs helm-operator and Rolewright on the same chart projects, one after the other on one control
// plane, and prints what they leave and what it costs: the objects of a release, the conditions, the revisions, requests
// to the API server, CPU and time. It judges only whether the objects are the same.
//
// Nothing of helm-operator is in this repository: its module is taken from the module cache or its proxy, for its
// program and its test project. Without it the part is left out, and the output says so. `make bench-charts` runs it.
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
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

type options struct {
	rolewright, helm string
	period           time.Duration
	periods          int
	own, only        string
}

func main() {
	var o options
	flag.StringVar(&o.rolewright, "rolewright", "bin/rolewright", "the operator's binary, beside which rolewright-helm is; empty for helm-operator alone")
	flag.StringVar(&o.helm, "helm", "bin/tools/helm", "Helm, which makes its starter chart")
	flag.StringVar(&o.own, "own", "examples/chart/helm-charts/microservice", "the chart of the example; empty to leave it out")
	flag.StringVar(&o.only, "chart", "", "only the chart of this name: memcached, starter or microservice")
	flag.DurationVar(&o.period, "period", 10*time.Second, "the reconcile period")
	flag.IntVar(&o.periods, "periods", 5, "how many periods the operators are idle")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "charts:", err)
		os.Exit(1)
	}
}

// agent is how the requests of this program are told from those of the operators.
const agent = "rolewright-compare-charts"

// bench is one comparison.
type bench struct {
	options

	config *rest.Config
	client client.Client
	dir    string
	audit  string
}

func run(ctx context.Context, o options) (err error) {
	b := bench{options: o, audit: os.Getenv("ROLEWRIGHT_TEST_AUDIT_LOG")}
	if b.audit == "" {
		return errors.New("there is no audit log: call `make bench-charts`")
	}
	if b.config, err = clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG")); err != nil {
		return err
	}
	b.config.QPS, b.config.UserAgent = -1, agent
	if b.client, err = client.New(b.config, client.Options{}); err != nil {
		return err
	}
	if b.dir, err = os.MkdirTemp("", "rolewright-charts-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	theirs, samples, err := b.theirs(ctx)
	if err != nil {
		fmt.Printf("helm-operator is left out: %v\n\n", err)
	}
	projects, err := b.projects(ctx, samples)
	if err != nil {
		return err
	}
	ours := o.rolewright
	if ours != "" {
		if ours, err = filepath.Abs(ours); err != nil {
			return err
		}
	}
	operators := []program{{name: "helm-operator", path: theirs}, {name: "Rolewright", path: ours, args: []string{
		"--runner-root=" + filepath.Join(b.dir, "runner"), "--proxy-port=0", "--user-metrics-bind-address=0",
	}}}
	differing := 0
	for _, p := range projects {
		if o.only != "" && p.name != o.only {
			continue
		}
		n, err := b.compare(ctx, operators, p)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		differing += n
	}
	if differing > 0 {
		return fmt.Errorf("the objects differ in %d places", differing)
	}
	return nil
}

// compare runs the operators that there are on a project, prints the results, and returns in how many places the objects
// of the two differ.
func (b *bench) compare(ctx context.Context, operators []program, p project) (differing int, err error) {
	if operators[0].path != "" && operators[1].path != "" {
		if err := b.takeOver(ctx, operators[0], operators[1], p); err != nil {
			return 0, err
		}
	}
	var results []result
	for _, op := range operators {
		if op.path == "" {
			continue
		}
		r, err := b.measure(ctx, op, p)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", op.name, err)
		}
		results = append(results, r)
	}
	fmt.Println(table(p.name, b.periods, results))
	if len(results) < 2 {
		return 0, nil
	}
	for i, when := range []string{"install", "change", "idle"} {
		if diff := cmp.Diff(results[0].phases[i].objects, results[1].phases[i].objects); diff != "" {
			differing++
			fmt.Printf("%s: the objects after %s differ (-helm-operator +Rolewright):\n%s\n", p.name, when, diff)
		}
	}
	return differing, nil
}

// table is the result as Markdown.
func table(name string, periods int, results []result) string {
	var text strings.Builder
	fmt.Fprintf(&text, "### %s\n\n|", name)
	line := "\n|---|"
	for _, r := range results {
		fmt.Fprintf(&text, " | %s", r.program)
		line += "---|"
	}
	text.WriteString(" |" + line + "\n")
	row := func(what string, of func(result) string) {
		fmt.Fprintf(&text, "| %s ", what)
		for _, r := range results {
			fmt.Fprintf(&text, "| %s ", of(r))
		}
		text.WriteString("|\n")
	}
	for i, what := range []string{"install", "change", fmt.Sprintf("idle, %d periods", periods), "deletion"} {
		if i != 2 {
			row(what+": time", func(r result) string { return fmt.Sprintf("%.1f s", r.phases[i].took.Seconds()) })
		}
		row(what+": CPU", func(r result) string { return fmt.Sprintf("%.2f s", r.phases[i].cpu.Seconds()) })
		row(what+": requests; of them writes", func(r result) string { return fmt.Sprintf("%d; %d", r.phases[i].requests, r.phases[i].writes) })
	}
	row("objects, installed; changed", func(r result) string {
		return fmt.Sprintf("%d; %d", len(r.phases[0].objects), len(r.phases[1].objects))
	})
	row("revision, installed; changed; idle", func(r result) string {
		return fmt.Sprintf("%d; %d; %d", r.phases[0].revision, r.phases[1].revision, r.phases[2].revision)
	})
	row("conditions, changed", func(r result) string { return r.phases[1].conditions })
	row("left after deletion", func(r result) string { return fmt.Sprint(len(r.phases[3].objects)) })
	row("memory, idle", func(r result) string { return fmt.Sprintf("%.0f MiB", r.memory) })
	return text.String()
}
