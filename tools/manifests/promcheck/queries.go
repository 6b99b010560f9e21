package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"sigs.k8s.io/yaml"
)

// dashboard is as much of a dashboard as is looked at.
type dashboard struct {
	UID    string
	Links  []struct{ Tags []string }
	Panels []struct {
		Type, Title, Description string
		Targets                  []struct{ Expr string }
	}
	Templating struct {
		List []struct{ Name string }
	}
}

// checkDashboards asks every query of every panel, and expects data. No panel is there twice, by
// its title or its query, and each dashboard has its own uid and a link to the others.
func (s *samples) checkDashboards(files []string) error {
	seen := map[string]string{}
	var problems []error
	for _, file := range files {
		problems = append(problems, s.checkDashboard(file, func(what string) error {
			if other, twice := seen[what]; twice {
				return fmt.Errorf("%s: %s is in %s already", file, what, other)
			}
			seen[what] = file
			return nil
		}))
	}
	return errors.Join(problems...)
}

func (s *samples) checkDashboard(file string, once func(what string) error) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read the dashboard: %w", err)
	}
	var d dashboard
	if err := json.Unmarshal(data, &d); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	problems := []error{once("uid " + d.UID)}
	if d.UID == "" || len(d.Links) == 0 || len(d.Links[0].Tags) == 0 {
		problems = append(problems, fmt.Errorf("%s needs a uid, and a link to the other dashboards by their tag", file))
	}
	asked := 0
	for _, panel := range d.Panels {
		if panel.Type == "row" {
			continue
		}
		if len(panel.Targets) == 0 || panel.Title == "" || panel.Description == "" {
			problems = append(problems, fmt.Errorf("%s: panel %q needs a title, a description and a query", file, panel.Title))
		}
		problems = append(problems, once("panel "+panel.Title))
		for _, t := range panel.Targets {
			asked++
			problems = append(problems, once("query "+t.Expr))
			if err := s.checkQuery(variables().Replace(t.Expr)); err != nil {
				problems = append(problems, fmt.Errorf("%s: panel %q: %s: %w", file, panel.Title, t.Expr, err))
			}
		}
	}
	if asked == 0 {
		problems = append(problems, fmt.Errorf("%s has no query", file))
	}
	return errors.Join(problems...)
}

// variables are what Grafana would put in place of them.
func variables() *strings.Replacer {
	return strings.NewReplacer("$__rate_interval", "5m", "$__range", "1h", "$job", target()["job"], "$namespace", ".+",
		`kind="$kind"`, `kind=~".+"`)
}

// checkQuery tells why a query gives no figure; nil if it does.
func (s *samples) checkQuery(query string) error {
	if err := s.checkNames(query); err != nil {
		return err
	}
	vector, err := s.ask(query)
	if err != nil {
		return err
	}
	for _, sample := range vector {
		if !math.IsNaN(sample.F) {
			return nil
		}
	}
	return fmt.Errorf("no data: %v", vector)
}

// rules is as much of a PrometheusRule as is looked at.
type rules struct {
	Spec json.RawMessage
}

// readRules reads the groups of a PrometheusRule, as strictly as Prometheus does.
func readRules(file string) (*rulefmt.RuleGroups, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the rules: %w", err)
	}
	var r rules
	if err := yaml.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	groups, errs := rulefmt.Parse(r.Spec, false, model.UTF8Validation)
	if len(errs) > 0 {
		return nil, fmt.Errorf("%s: %w", file, errors.Join(errs...))
	}
	return groups, nil
}

// checkRules expects data of what is recorded, and of alerts that what they name
// exists.
func (s *samples) checkRules(file string) error {
	groups, err := readRules(file)
	if err != nil {
		return err
	}
	var problems []error
	for _, group := range groups.Groups {
		for _, rule := range group.Rules {
			check := s.checkNames
			if rule.Record != "" {
				check = s.checkQuery
			}
			if err := check(rule.Expr); err != nil {
				problems = append(problems, fmt.Errorf("%s: rule %s%s: %w", file, rule.Record, rule.Alert, err))
			}
		}
	}
	return errors.Join(problems...)
}
