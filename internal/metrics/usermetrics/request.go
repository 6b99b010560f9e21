package usermetrics

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// kind is a type of metric, as its key in a request.
type kind string

const (
	counter   kind = "counter"
	gauge     kind = "gauge"
	histogram kind = "histogram"
	summary   kind = "summary"
)

// class groups a metric with the requests that it accepts.
func (k kind) class() string {
	if k == histogram || k == summary {
		return "histogram or summary"
	}
	return string(k)
}

// lines returns how many lines a series takes in the exposition.
func (k kind) lines() int {
	switch k {
	case histogram:
		return len(prometheus.DefBuckets) + 3 // +Inf, sum and count
	case summary:
		return 2 // sum and count
	default:
		return 1
	}
}

// suffixes returns what the exposition appends to the metric's name.
func (k kind) suffixes() []string {
	switch k {
	case histogram:
		return []string{"_count", "_sum", "_bucket"}
	case summary:
		return []string{"_count", "_sum"}
	}
	return nil
}

// request is the body of a POST. A field that is null or missing is nil.
type request struct {
	Name        string            `json:"name"`
	Description string            `json:"description"`
	Labels      map[string]string `json:"labels"`
	Counter     *counting         `json:"counter"`
	Gauge       *gauging          `json:"gauge"`
	Histogram   *observing        `json:"histogram"`
	Summary     *observing        `json:"summary"`
}

type counting struct {
	Increment bool    `json:"increment"`
	Add       float64 `json:"add"`
}

type gauging struct {
	Increment        bool     `json:"increment"`
	Decrement        bool     `json:"decrement"`
	Add              float64  `json:"add"`
	Subtract         float64  `json:"subtract"`
	Set              *float64 `json:"set"`
	SetToCurrentTime bool     `json:"set_to_current_time"`
}

type observing struct {
	Observe float64 `json:"observe"`
}

// decode reads a request. It reads no further than the end of the object.
func decode(body io.Reader) (request, error) {
	var r request
	err := json.NewDecoder(body).Decode(&r)
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return r, fmt.Errorf("the request is larger than %d bytes", tooLarge.Limit)
	}
	return r, err
}

// change is the change that a request makes to a series. amount is added to a
// counter, observed by a histogram or summary, and added to a gauge or, if set is
// true, becomes the value of the gauge.
type change struct {
	kind   kind
	amount float64
	set    bool
}

func (r request) change() (change, error) {
	var changes []change
	if r.Counter != nil {
		changes = append(changes, r.Counter.change())
	}
	if r.Gauge != nil {
		changes = append(changes, r.Gauge.change())
	}
	if r.Histogram != nil {
		changes = append(changes, change{kind: histogram, amount: r.Histogram.Observe})
	}
	if r.Summary != nil {
		changes = append(changes, change{kind: summary, amount: r.Summary.Observe})
	}
	switch len(changes) {
	case 0:
		return change{}, errors.New("a request should contain at least one metric")
	case 1:
		return changes[0], nil
	}
	return change{}, errors.New("only one metric can be processed at a time")
}

func (c counting) change() change {
	if c.Increment {
		return change{kind: counter, amount: 1}
	}
	return change{kind: counter, amount: c.Add}
}

func (g gauging) change() change {
	switch {
	case g.Increment:
		return change{kind: gauge, amount: 1}
	case g.Decrement:
		return change{kind: gauge, amount: -1}
	case g.Add != 0:
		return change{kind: gauge, amount: g.Add}
	case g.Subtract != 0:
		return change{kind: gauge, amount: -g.Subtract}
	case g.Set != nil:
		return change{kind: gauge, amount: *g.Set, set: true}
	case g.SetToCurrentTime:
		return change{kind: gauge, amount: float64(time.Now().UnixNano()) / float64(time.Second), set: true}
	}
	return change{kind: gauge}
}
