package usermetrics

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"golang.org/x/time/rate"

	"github.com/rolewright/rolewright/internal/text"
)

// Metrics are kept as long as the operator runs, and a role may create them in a
// loop by mistake. So everything is bounded, far above what a dashboard can show.
const (
	maxMetrics = 500
	// maxSeries bounds the combinations of label values of each metric, and maxTotal
	// those of all metrics. maxText bounds the bytes of names, labels and descriptions
	// in one scrape of all metrics: a series of a histogram has 14 lines.
	maxSeries = 1000
	maxTotal  = 10_000
	maxText   = 4 << 20

	maxName        = 200 // of a metric or label, in bytes
	maxDescription = 1024
	maxLabels      = 10
	maxLabelValue  = 256

	// maxBody has room for all of the above several times, escaped.
	maxBody = 64 << 10
)

// Options says where user metrics go.
type Options struct {
	// Registerer is a [prometheus.Registry], which gets every user metric. The
	// operator's own metrics must be registered before the first request, or a user metric may
	// take their names.
	Registerer prometheus.Registerer
	Log        logr.Logger
	// Full is called when a request is refused because there are too many
	// metrics; it may be nil.
	Full func()
}

// Handler keeps the user metrics and answers the requests that change them. It
// is safe for concurrent use.
type Handler struct {
	opts Options
	// said limits how many refusals are logged: a role may repeat its request as often as it likes.
	said rate.Sometimes

	mu       sync.Mutex
	families map[string]*family
	total    usage
}

// usage is the usage of all metrics together.
type usage struct{ series, text int }

// ErrFull is wrapped by refusals that are due to a limit.
var ErrFull = errors.New("post fewer metrics or label values, or restart the operator, which begins without any")

// check returns an error that names a limit that is exceeded.
func (u usage) check() error {
	switch {
	case u.series > maxTotal:
		return fmt.Errorf("all user metrics together have %d combinations of label values already, and more are not kept: %w", maxTotal, ErrFull)
	case u.text > maxText:
		return fmt.Errorf("names, labels and descriptions of all user metrics together would have more than %d bytes: %w", maxText, ErrFull)
	}
	return nil
}

var _ http.Handler = (*Handler)(nil)

// New returns a Handler without metrics.
func New(opts Options) *Handler {
	if opts.Full == nil {
		opts.Full = func() {}
	}
	return &Handler{opts: opts, said: rate.Sometimes{First: 10, Interval: time.Minute}, families: map[string]*family{}}
}

// Close drops all metrics and removes them from the registerer. There, their names
// stay bound to their descriptions and labels.
func (h *Handler) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, f := range h.families {
		h.opts.Registerer.Unregister(f.vec)
		delete(h.families, name)
	}
	h.total = usage{}
}

// ServeHTTP answers one request, whatever its path.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "Method not allowed", http.StatusMethodNotAllowed)
		return
	}
	req, err := decode(http.MaxBytesReader(w, r.Body, maxBody))
	if err == nil {
		err = h.record(req)
	}
	if err != nil {
		h.refused(err)
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
}

// Record executes a request that arrived in another way. It is the same JSON, but must not have unknown
// fields. The error is for the sender, and wraps [ErrFull] if a limit is reached.
func (h *Handler) Record(body []byte) error {
	var req request
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(&req)
	if err == nil {
		err = h.record(req)
	}
	if err != nil {
		h.refused(err)
	}
	return err
}

func (h *Handler) refused(err error) {
	if errors.Is(err, ErrFull) {
		h.opts.Full()
	}
	h.said.Do(func() { h.opts.Log.Info("user metric refused", "reason", text.Clip(err.Error(), 1<<10)) })
}

// record executes a request. The error is for the client.
func (h *Handler) record(r request) error {
	c, err := r.change()
	if err != nil {
		return err
	}
	if err := r.checkLabelValues(); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if f, known := h.families[r.Name]; known {
		total, err := f.apply(c, r.Labels, h.total)
		if err == nil {
			h.total = total
		}
		return err
	}
	return h.recordFirst(r, c)
}

// recordFirst executes the first request for a metric.
func (h *Handler) recordFirst(r request, c change) error {
	if err := r.checkNames(c.kind); err != nil {
		return err
	}
	if len(h.families) >= maxMetrics {
		return fmt.Errorf("there are %d user metrics already, and more are not kept: %w", maxMetrics, ErrFull)
	}
	if other := h.confusable(r.Name, c.kind); other != "" {
		return fmt.Errorf("%s cannot be a %s beside the metric %s: both would have series of the same name", r.Name, c.kind, other)
	}
	f := newFamily(r, c.kind)
	total, err := f.apply(c, r.Labels, usage{series: h.total.series, text: h.total.text + len(r.Description)})
	if err != nil {
		return err
	}
	if h.opts.Registerer.Register(f.vec) != nil {
		// Names and labels are valid, so the reason is that the name is taken.
		return fmt.Errorf("%s is the name of one of the operator's own metrics", r.Name)
	}
	h.families[r.Name], h.total = f, total
	h.opts.Log.Info("Registering", "metric", r.Name)
	return nil
}

// confusable returns a registered metric whose series would share a name with
// those of a new one, such as a histogram x and a counter x_count. A registry
// accepts both, and then fails at each scrape.
func (h *Handler) confusable(name string, k kind) string {
	for _, suffix := range k.suffixes() {
		if h.registered(name + suffix) {
			return name + suffix
		}
	}
	for _, suffix := range histogram.suffixes() {
		base, cut := strings.CutSuffix(name, suffix)
		if !cut {
			continue
		}
		if f, own := h.families[base]; own && !slices.Contains(f.kind.suffixes(), suffix) {
			continue
		}
		// The registerer does not say which type the metric of another part has.
		if h.registered(base) {
			return base
		}
	}
	return ""
}

// errFree is the error of a probe if the name is not taken.
var errFree = errors.New("the name is free")

// probe describes a metric that is never registered.
type probe string

// Describe sends the name with a help text that no metric of the operator has,
// which is refused if the name is known. Then it sends a description that is always
// refused.
func (p probe) Describe(ch chan<- *prometheus.Desc) {
	ch <- prometheus.NewDesc(string(p), "\x00", nil, nil)
	ch <- prometheus.NewInvalidDesc(errFree)
}

// Collect is never called.
func (p probe) Collect(chan<- prometheus.Metric) {}

// registered reports whether a metric of this name is or was registered. The only way
// to ask a registerer is to register something.
func (h *Handler) registered(name string) bool {
	if _, own := h.families[name]; own {
		return true
	}
	return !errors.Is(h.opts.Registerer.Register(probe(name)), errFree)
}

func (r request) checkNames(k kind) error {
	switch {
	case len(r.Name) > maxName:
		return fmt.Errorf("the metric's name is longer than %d bytes", maxName)
	case !model.LegacyValidation.IsValidMetricName(r.Name):
		return fmt.Errorf("%q is not a valid metric name: write letters, digits, underscores and colons, no digit first", r.Name)
	case len(r.Description) > maxDescription:
		return fmt.Errorf("the description of %s is longer than %d bytes", r.Name, maxDescription)
	case len(r.Labels) > maxLabels:
		return fmt.Errorf("%s has more than %d labels", r.Name, maxLabels)
	}
	for name := range r.Labels {
		switch {
		case len(name) > maxName:
			return fmt.Errorf("a label's name is longer than %d bytes", maxName)
		case !model.LegacyValidation.IsValidLabelName(name) || strings.HasPrefix(name, model.ReservedLabelPrefix):
			return fmt.Errorf("%q is not a valid label name: write letters, digits and underscores, no digit and no two underscores first", name)
		case k.suffixes() != nil && (name == model.BucketLabel || name == model.QuantileLabel):
			return fmt.Errorf("the label %s is reserved in a %s", name, k)
		}
	}
	return nil
}

func (r request) checkLabelValues() error {
	for _, value := range r.Labels {
		if len(value) > maxLabelValue {
			return fmt.Errorf("a label's value is longer than %d bytes", maxLabelValue)
		}
	}
	return nil
}
