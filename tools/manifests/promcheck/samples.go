package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
)

// interval is the time between two scrapes.
const interval = 30 * time.Second

// target are the labels that Prometheus gives to all series of one Pod.
func target() map[string]string {
	return map[string]string{"job": "memcached-operator", "namespace": "operators", "pod": "operator-0", "instance": "10.0.0.1:8443"}
}

// samples are scrapes that can be asked. They are made by load.
type samples struct {
	dir       string
	db        *tsdb.DB
	queryable storage.Queryable
	engine    *promql.Engine
	end       time.Time
}

// load reads scrapes; close has to follow unless there is an error.
func load(files []string) (_ *samples, err error) {
	dir, err := os.MkdirTemp("", "promcheck-")
	if err != nil {
		return nil, fmt.Errorf("make a directory: %w", err)
	}
	defer func() {
		if err != nil {
			_ = os.RemoveAll(dir)
		}
	}()
	options := tsdb.DefaultOptions()
	options.RetentionDuration = 0
	db, err := tsdb.Open(dir, slog.New(slog.DiscardHandler), nil, options, nil)
	if err != nil {
		return nil, fmt.Errorf("open a database: %w", err)
	}
	s := &samples{dir: dir, db: db, queryable: db, engine: promql.NewEngine(promql.EngineOpts{MaxSamples: 10_000_000, Timeout: time.Minute})}
	at := time.Now().Add(-time.Hour)
	for _, file := range files {
		if err := s.add(file, at); err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", file, err), db.Close())
		}
		s.end, at = at, at.Add(interval)
	}
	return s, nil
}

func (s *samples) close() {
	_ = s.db.Close() // no one needs it any more
	_ = os.RemoveAll(s.dir)
}

// add reads one scrape, as Prometheus does that finds the labels of the target in
// it: they are renamed.
func (s *samples) add(file string, at time.Time) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	app := s.db.Appender(context.Background())
	store := func(l labels.Labels, value float64) error {
		b := labels.NewBuilder(l)
		for name, is := range target() {
			if was := l.Get(name); was != "" {
				b.Set("exported_"+name, was)
			}
			b.Set(name, is)
		}
		_, err := app.Append(0, b.Labels(), at.UnixMilli(), value)
		return err
	}
	if err := store(labels.FromStrings("__name__", "up"), 1); err != nil {
		return errors.Join(err, app.Rollback())
	}
	p := textparse.NewPromParser(bytes.TrimLeft(data, "\n"), labels.NewSymbolTable(), false)
	for {
		entry, err := p.Next()
		if errors.Is(err, io.EOF) {
			return app.Commit()
		}
		if err != nil {
			return errors.Join(fmt.Errorf("no metrics: %w", err), app.Rollback())
		}
		if entry != textparse.EntrySeries {
			continue
		}
		_, _, value := p.Series()
		var l labels.Labels
		p.Labels(&l)
		if err := store(l, value); err != nil {
			return errors.Join(err, app.Rollback())
		}
	}
}

// ask evaluates a query at the time of the last scrape.
func (s *samples) ask(query string) (promql.Vector, error) {
	q, err := s.engine.NewInstantQuery(context.Background(), s.queryable, nil, query, s.end)
	if err != nil {
		return nil, err
	}
	defer q.Close()
	res := q.Exec(context.Background())
	if res.Err != nil {
		return nil, res.Err
	}
	vector, err := res.Vector()
	if err != nil {
		return nil, fmt.Errorf("it gives no vector: %w", err)
	}
	return vector, nil
}

// checkNames tells which metrics of a query do not exist, and which labels no
// series of a metric has that the query selects or groups by.
func (s *samples) checkNames(query string) error {
	expr, err := parser.ParseExpr(query)
	if err != nil {
		return err
	}
	var problems []error
	parser.Inspect(expr, func(node parser.Node, path []parser.Node) error {
		selector, ok := node.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		series, err := s.ask(selector.Name)
		if err != nil || len(series) == 0 {
			problems = append(problems, errors.Join(fmt.Errorf("there is no metric %s", selector.Name), err))
			return nil
		}
		for name := range used(selector, path) {
			if !has(series, name) {
				problems = append(problems, fmt.Errorf("no series of %s has a label %s", selector.Name, name))
			}
		}
		return nil
	})
	return errors.Join(problems...)
}

// used are the labels by which a selector's series are selected and grouped.
func used(selector *parser.VectorSelector, path []parser.Node) map[string]bool {
	names := map[string]bool{}
	add := func(labels []string) {
		for _, name := range labels {
			names[name] = true
		}
	}
	for i, node := range path {
		switch n := node.(type) {
		case *parser.AggregateExpr:
			if !n.Without {
				add(n.Grouping)
			}
		case *parser.BinaryExpr:
			// The right side of these only says which series of the left side there are: it is in no group.
			below := append(path[i+1:len(path):len(path)], selector)[0]
			if (n.Op == parser.LAND || n.Op == parser.LUNLESS) && below == parser.Node(n.RHS) {
				clear(names)
				if n.VectorMatching.On {
					add(n.VectorMatching.MatchingLabels)
				}
			}
		}
	}
	for _, m := range selector.LabelMatchers {
		names[m.Name] = true
	}
	delete(names, model.MetricNameLabel)
	return names
}

func has(series promql.Vector, label string) bool {
	for _, sample := range series {
		if sample.Metric.Get(label) != "" {
			return true
		}
	}
	return false
}
