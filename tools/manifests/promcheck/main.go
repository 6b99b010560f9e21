// Command promcheck asks the queries of a dashboard and of a file of rules of what an operator has exported.
//
// It knows Prometheus: its text format, its query engine, and what a dashboard of Grafana and a PrometheusRule look like.
// It knows nothing of what is measured. A query of a panel has to give data; the metrics and labels that a rule names
// have to exist, since an alert should give nothing most of the time.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "promcheck: %v\n", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("promcheck", flag.ContinueOnError)
	rules := flags.String("rules", "", "a `file` with a PrometheusRule")
	var dashboards []string
	flags.Func("dashboard", "a `file` with a dashboard of Grafana; may be given several times", func(file string) error {
		dashboards = append(dashboards, file)
		return nil
	})
	flags.Usage = func() {
		fmt.Fprintln(flags.Output(), "Usage: promcheck -rules FILE -dashboard FILE... SCRAPE...\n\n"+
			"Scrapes are files in Prometheus' text format, taken one after the other; they count as 30 s apart.")
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *rules == "" || len(dashboards) == 0 || flags.NArg() == 0 {
		flags.Usage()
		return errors.New("-rules, -dashboard and scrapes are needed")
	}
	samples, err := load(flags.Args())
	if err != nil {
		return err
	}
	defer samples.close()
	return errors.Join(samples.checkDashboards(dashboards), samples.checkRules(*rules))
}
