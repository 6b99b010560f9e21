package usermetrics

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// maxCount is the highest count. Far above it, a counter would start from 0 again: a
// [prometheus.Counter] counts whole numbers in 64 bits.
const maxCount = 1 << 63

// family is one metric with all of its series.
type family struct {
	name   string
	kind   kind
	labels []string // the names, sorted
	vec    prometheus.Collector
	// instrument makes the series with these label values.
	instrument func(values []string) instrument
	series     map[string]*series
}

// instrument records a change of a series. It gets the new value and the amount of
// the change, because some types of metric accept only the amount.
type instrument func(value, amount float64)

// series is one combination of label values.
type series struct {
	// value is the value of a counter or gauge, the sum of a histogram or summary.
	value  float64
	record instrument
}

// newFamily returns a family without series. Its names must be valid.
func newFamily(r request, k kind) *family {
	f := &family{name: r.Name, kind: k, labels: slices.Sorted(maps.Keys(r.Labels)), series: map[string]*series{}}
	switch k {
	case counter:
		vec := prometheus.NewCounterVec(prometheus.CounterOpts{Name: r.Name, Help: r.Description}, f.labels)
		f.vec = vec
		f.instrument = func(values []string) instrument {
			c := vec.WithLabelValues(values...)
			return func(_, amount float64) { c.Add(amount) }
		}
	case gauge:
		vec := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: r.Name, Help: r.Description}, f.labels)
		f.vec = vec
		f.instrument = func(values []string) instrument {
			g := vec.WithLabelValues(values...)
			return func(value, _ float64) { g.Set(value) }
		}
	case histogram:
		vec := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: r.Name, Help: r.Description}, f.labels)
		f.vec, f.instrument = vec, observer(vec)
	case summary:
		vec := prometheus.NewSummaryVec(prometheus.SummaryOpts{Name: r.Name, Help: r.Description}, f.labels)
		f.vec, f.instrument = vec, observer(vec)
	}
	return f
}

func observer(vec prometheus.ObserverVec) func(values []string) instrument {
	return func(values []string) instrument {
		o := vec.WithLabelValues(values...)
		return func(_, amount float64) { o.Observe(amount) }
	}
}

// apply makes a change to the series with these labels. total is the usage of all
// metrics before the change; apply returns the usage afterwards. If it returns an error, nothing has
// changed.
func (f *family) apply(c change, labels map[string]string, total usage) (usage, error) {
	if c.kind.class() != f.kind.class() {
		return total, fmt.Errorf("cannot change metric type of %s, which is a %s", f.name, f.kind.class())
	}
	if names := slices.Sorted(maps.Keys(labels)); !slices.Equal(names, f.labels) {
		return total, fmt.Errorf("cannot change labels of %s, which are %s", f.name, list(f.labels))
	}
	values := make([]string, 0, len(f.labels))
	for _, name := range f.labels {
		values = append(values, labels[name])
	}
	key := strings.Join(values, "\xff") // UTF-8 text does not contain the separator
	s := f.series[key]
	var before float64
	if s != nil {
		before = s.value
	} else if len(f.series) == maxSeries {
		return total, fmt.Errorf("%s has %d combinations of label values already, and more are not kept: %w", f.name, maxSeries, ErrFull)
	} else {
		total.series++
		total.text += f.kind.lines() * written(f.name, labels)
		if err := total.check(); err != nil {
			return total, err
		}
	}
	value, err := c.applied(before)
	if err != nil {
		return total, err
	}
	if s == nil {
		s = &series{record: f.instrument(values)}
		f.series[key] = s
	}
	s.value = value
	s.record(value, c.amount)
	return total, nil
}

// written returns the length of name and labels in a line of the exposition, in which
// quotes, backslashes and line ends are escaped.
func written(name string, labels map[string]string) int {
	n := len(name)
	for label, value := range labels {
		n += len(label) + len(value) + strings.Count(value, `"`) + strings.Count(value, `\`) + strings.Count(value, "\n")
	}
	return n
}

// applied returns the value after the change.
func (c change) applied(before float64) (float64, error) {
	value := before + c.amount
	if c.set {
		value = c.amount
	}
	switch {
	case c.kind == counter && c.amount < 0:
		return 0, errors.New("counter metrics cannot decrease in value")
	case c.kind == counter && value > maxCount:
		return 0, fmt.Errorf("counter metrics cannot exceed %.0e", float64(maxCount))
	case math.IsInf(value, 0):
		return 0, errors.New("metrics cannot become infinite")
	}
	return value, nil
}

func list(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}
