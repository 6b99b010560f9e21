package usermetrics

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/rolewright/rolewright/test/must"
)

// newHandler returns a Handler and its registry. The registry checks at every Gather that its metrics are consistent.
func newHandler(t testing.TB, change ...func(*Options)) (*Handler, *prometheus.Registry) {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	opts := Options{Registerer: reg, Log: logr.Discard()}
	for _, c := range change {
		c(&opts)
	}
	return New(opts), reg
}

func send(h http.Handler, method, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, "/metrics", strings.NewReader(body)))
	return w
}

// post returns the text of the refusal; empty if there is none.
func post(t testing.TB, h http.Handler, body string) string {
	t.Helper()
	w := send(h, http.MethodPost, body)
	text := w.Body.String()
	switch {
	case w.Code == http.StatusOK && text == "":
		return ""
	case w.Code == http.StatusBadRequest && strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain") && strings.TrimSpace(text) != "":
		return strings.TrimSuffix(text, "\n")
	}
	t.Errorf("%.200q: answer %d %q, want 200 without text or 400 with one", body, w.Code, text)
	return text
}

func mustPost(t testing.TB, h http.Handler, bodies ...string) {
	t.Helper()
	for _, body := range bodies {
		if refusal := post(t, h, body); refusal != "" {
			t.Errorf("%.200q is refused: %s", body, refusal)
		}
	}
}

// values gathers the registry. It returns the series of counters and gauges with their values, and _sum and _count of
// histograms and summaries.
func values(t testing.TB, reg prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatalf("the registry cannot be read: %v", err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			name := func(suffix string) string {
				if labels == nil {
					return f.GetName() + suffix
				}
				return f.GetName() + suffix + "{" + strings.Join(labels, ",") + "}"
			}
			switch f.GetType().String() {
			case "COUNTER":
				got[name("")] = m.GetCounter().GetValue()
			case "GAUGE":
				got[name("")] = m.GetGauge().GetValue()
			case "HISTOGRAM":
				got[name("_sum")] = m.GetHistogram().GetSampleSum()
				got[name("_count")] = float64(m.GetHistogram().GetSampleCount())
			case "SUMMARY":
				got[name("_sum")] = m.GetSummary().GetSampleSum()
				got[name("_count")] = float64(m.GetSummary().GetSampleCount())
			}
		}
	}
	return got
}

func wantValues(t testing.TB, reg prometheus.Gatherer, want map[string]float64) {
	t.Helper()
	must.Be(t, "metrics", want, values(t, reg))
}

func TestServeHTTP_ChangesMetrics(t *testing.T) {
	type m = map[string]float64
	for name, tt := range map[string]struct {
		bodies []string
		want   m
	}{
		"counter without operation":        {[]string{`{"name":"m","counter":{}}`}, m{"m": 0}},
		"counter with nulls":               {[]string{`{"name":"m","counter":{"increment":null,"add":null}}`}, m{"m": 0}},
		"no operation later":               {[]string{`{"name":"m","counter":{"add":2}}`, `{"name":"m","counter":{}}`}, m{"m": 2}},
		"increment":                        {[]string{`{"name":"m","counter":{"increment":true}}`, `{"name":"m","counter":{"increment":true}}`}, m{"m": 2}},
		"increment false":                  {[]string{`{"name":"m","counter":{"increment":false}}`}, m{"m": 0}},
		"add":                              {[]string{`{"name":"m","counter":{"add":3.14}}`, `{"name":"m","counter":{"add":0}}`}, m{"m": 3.14}},
		"increment before add":             {[]string{`{"name":"m","counter":{"add":5,"increment":true}}`}, m{"m": 1}},
		"increment before what is refused": {[]string{`{"name":"m","counter":{"add":-5,"increment":true}}`}, m{"m": 1}},
		"add where increment is false":     {[]string{`{"name":"m","counter":{"add":5,"increment":false}}`}, m{"m": 5}},

		"gauge without operation": {[]string{`{"name":"m","gauge":{}}`}, m{"m": 0}},
		"gauge up and down": {[]string{
			`{"name":"m","gauge":{"set":10}}`, `{"name":"m","gauge":{"increment":true}}`, `{"name":"m","gauge":{"decrement":true}}`,
			`{"name":"m","gauge":{"decrement":true}}`, `{"name":"m","gauge":{"add":-4}}`, `{"name":"m","gauge":{"subtract":-0.5}}`,
		}, m{"m": 5.5}},
		"set to 0":                        {[]string{`{"name":"m","gauge":{"set":7}}`, `{"name":"m","gauge":{"set":0}}`}, m{"m": 0}},
		"set null":                        {[]string{`{"name":"m","gauge":{"set":7}}`, `{"name":"m","gauge":{"set":null}}`}, m{"m": 7}},
		"zeros have no effect before set": {[]string{`{"name":"m","gauge":{"add":0,"subtract":0,"set":7}}`}, m{"m": 7}},
		"gauge order 1":                   {[]string{`{"name":"m","gauge":{"set_to_current_time":true,"set":9,"subtract":8,"add":7,"decrement":true,"increment":true}}`}, m{"m": 1}},
		"gauge order 2":                   {[]string{`{"name":"m","gauge":{"set_to_current_time":true,"set":9,"subtract":8,"add":7,"decrement":true}}`}, m{"m": -1}},
		"gauge order 3":                   {[]string{`{"name":"m","gauge":{"set_to_current_time":true,"set":9,"subtract":8,"add":7}}`}, m{"m": 7}},
		"gauge order 4":                   {[]string{`{"name":"m","gauge":{"set_to_current_time":true,"set":9,"subtract":8}}`}, m{"m": -8}},
		"gauge order 5":                   {[]string{`{"name":"m","gauge":{"set_to_current_time":true,"set":9}}`}, m{"m": 9}},
		"time before no set":              {[]string{`{"name":"m","gauge":{"set_to_current_time":true,"set":0}}`}, m{"m": 0}},

		"histogram":                 {[]string{`{"name":"m","histogram":{"observe":2.5}}`, `{"name":"m","histogram":{"observe":-1}}`}, m{"m_sum": 1.5, "m_count": 2}},
		"histogram without observe": {[]string{`{"name":"m","histogram":{}}`, `{"name":"m","histogram":{"observe":null}}`}, m{"m_sum": 0, "m_count": 2}},
		"summary":                   {[]string{`{"name":"m","summary":{"observe":2.5}}`, `{"name":"m","summary":{}}`}, m{"m_sum": 2.5, "m_count": 2}},
		"summary into histogram":    {[]string{`{"name":"m","histogram":{"observe":2}}`, `{"name":"m","summary":{"observe":3}}`}, m{"m_sum": 5, "m_count": 2}},

		"the others are null":    {[]string{`{"name":"m","description":"d","labels":null,"counter":null,"gauge":{"set":1},"histogram":null,"summary":null}`}, m{"m": 1}},
		"unknown keys":           {[]string{`{"name":"m","gauge":{"set":1,"unit":"s"},"unit":"s"}`}, m{"m": 1}},
		"text behind the object": {[]string{`{"name":"m","gauge":{"set":1}} tail`}, m{"m": 1}},
		"colon":                  {[]string{`{"name":"a:b_2","gauge":{"set":1}}`}, m{"a:b_2": 1}},
		"another description":    {[]string{`{"name":"m","description":"a","gauge":{"set":1}}`, `{"name":"m","description":"b","gauge":{"set":2}}`}, m{"m": 2}},

		"labels": {[]string{
			`{"name":"m","labels":{"b":"1","a":"x"},"counter":{"increment":true}}`, `{"name":"m","labels":{"a":"x","b":"2"},"counter":{}}`,
			`{"name":"m","labels":{"a":"x","b":"1"},"counter":{"add":2}}`, `{"name":"m","labels":{"a":"","b":"é"},"counter":{"add":4}}`,
		}, m{"m{a=x,b=1}": 3, "m{a=x,b=2}": 0, "m{a=,b=é}": 4}},
		"empty labels": {[]string{`{"name":"m","labels":{},"counter":{}}`, `{"name":"m","counter":{}}`}, m{"m": 0}},
		"labels of observers": {[]string{`{"name":"h","labels":{"a":"1"},"histogram":{"observe":1}}`, `{"name":"s","labels":{"a":"1"},"summary":{"observe":2}}`},
			m{"h_sum{a=1}": 1, "h_count{a=1}": 1, "s_sum{a=1}": 2, "s_count{a=1}": 1}},
		"le and quantile of a gauge": {[]string{`{"name":"m","labels":{"le":"1","quantile":"2"},"gauge":{"set":1}}`}, m{"m{le=1,quantile=2}": 1}},

		"names that only look alike": {[]string{
			`{"name":"x_count","gauge":{"set":1}}`, `{"name":"x","gauge":{"set":2}}`, `{"name":"x_sum","counter":{"add":3}}`,
			`{"name":"y","summary":{"observe":4}}`, `{"name":"y_bucket","gauge":{"set":5}}`, `{"name":"y_total","counter":{"add":6}}`,
		}, m{"x_count": 1, "x": 2, "x_sum": 3, "y_sum": 4, "y_count": 1, "y_bucket": 5, "y_total": 6}},
		"the largest values": {[]string{`{"name":"c","counter":{"add":9e18}}`, `{"name":"g","gauge":{"set":-1.7e308}}`}, m{"c": 9e18, "g": -1.7e308}},
	} {
		t.Run(name, func(t *testing.T) {
			h, reg := newHandler(t)
			mustPost(t, h, tt.bodies...)
			wantValues(t, reg, tt.want)
		})
	}
}

func TestServeHTTP_RefusesAndChangesNothing(t *testing.T) {
	before := []string{
		`{"name":"c","counter":{"add":2}}`, `{"name":"g","labels":{"b":"1","a":"1"},"gauge":{"set":2}}`,
		`{"name":"h","histogram":{"observe":2}}`, `{"name":"s","summary":{"observe":2}}`,
		`{"name":"h2_bucket","gauge":{}}`, `{"name":"s2_sum","gauge":{}}`, `{"name":"s3_sum","description":"\u0000","gauge":{}}`,
		`{"name":"big","counter":{"add":9.2e18}}`, `{"name":"large","gauge":{"set":1.7e308}}`, `{"name":"wide","summary":{"observe":1.7e308}}`,
	}
	many := make([]string, 0, maxLabels+1)
	for i := range maxLabels + 1 {
		many = append(many, fmt.Sprintf("%q:%q", fmt.Sprint("l", i), "x"))
	}
	for name, tt := range map[string]struct{ body, want string }{
		"empty":           {``, "EOF"},
		"cut short":       {`{"name":"x"`, "unexpected EOF"},
		"no JSON":         {`counter`, "invalid character 'c' looking for beginning of value"},
		"not a number":    {`{"name":"x","gauge":{"set":NaN}}`, "invalid character 'N' looking for beginning of value"},
		"infinite":        {`{"name":"x","gauge":{"set":-Infinity}}`, "invalid character 'I' in numeric literal"},
		"beyond a float":  {`{"name":"x","gauge":{"set":1e999}}`, "json: cannot unmarshal number 1e999 into Go struct field "},
		"text for number": {`{"name":"x","counter":{"add":"2"}}`, "json: cannot unmarshal string into Go struct field "},
		"number as label": {`{"name":"x","labels":{"a":1},"counter":{}}`, "json: cannot unmarshal number into Go struct field "},
		"too large":       {`{"name":"x","counter":{},"description":"` + strings.Repeat("x", maxBody) + `"}`, "the request is larger than 65536 bytes"},

		"nothing":           {`{}`, "a request should contain at least one metric"},
		"null":              {`null`, "a request should contain at least one metric"},
		"only nulls":        {`{"name":"c","counter":null,"gauge":null}`, "a request should contain at least one metric"},
		"two":               {`{"name":"c","counter":{},"gauge":{}}`, "only one metric can be processed at a time"},
		"two of a way":      {`{"name":"h","histogram":{},"summary":{}}`, "only one metric can be processed at a time"},
		"four without name": {`{"counter":{},"gauge":{},"histogram":{},"summary":{}}`, "only one metric can be processed at a time"},

		"negative":             {`{"name":"c","counter":{"add":-1}}`, "counter metrics cannot decrease in value"},
		"negative, first":      {`{"name":"x","counter":{"add":-1e-300}}`, "counter metrics cannot decrease in value"},
		"counter as gauge":     {`{"name":"c","gauge":{"set":1}}`, "cannot change metric type of c, which is a counter"},
		"counter as summary":   {`{"name":"c","summary":{}}`, "cannot change metric type of c, which is a counter"},
		"gauge as counter":     {`{"name":"g","counter":{"add":-1}}`, "cannot change metric type of g, which is a gauge"},
		"histogram as gauge":   {`{"name":"h","gauge":{}}`, "cannot change metric type of h, which is a histogram or summary"},
		"summary as counter":   {`{"name":"s","counter":{}}`, "cannot change metric type of s, which is a histogram or summary"},
		"counter too large":    {`{"name":"big","counter":{"add":9.2e18}}`, "counter metrics cannot exceed 9e+18"},
		"counter beyond first": {`{"name":"x","counter":{"add":1e300}}`, "counter metrics cannot exceed 9e+18"},
		"gauge overflow":       {`{"name":"large","gauge":{"add":1.7e308}}`, "metrics cannot become infinite"},
		"sum overflow":         {`{"name":"wide","summary":{"observe":1.7e308}}`, "metrics cannot become infinite"},

		"no name":             {`{"counter":{}}`, `"" is not a valid metric name: write letters, digits, underscores and colons, no digit first`},
		"dash":                {`{"name":"a-b","counter":{}}`, `"a-b" is not a valid metric name: write letters, digits, underscores and colons, no digit first`},
		"digit first":         {`{"name":"1a","counter":{}}`, `"1a" is not a valid metric name: write letters, digits, underscores and colons, no digit first`},
		"letter beyond ASCII": {`{"name":"é","counter":{}}`, `"é" is not a valid metric name: write letters, digits, underscores and colons, no digit first`},
		"line break":          {`{"name":"a\nb","counter":{}}`, `"a\nb" is not a valid metric name: write letters, digits, underscores and colons, no digit first`},
		"long name":           {`{"name":"` + strings.Repeat("a", maxName+1) + `","counter":{}}`, "the metric's name is longer than 200 bytes"},
		"long description":    {`{"name":"x","description":"` + strings.Repeat("a", maxDescription+1) + `","counter":{}}`, "the description of x is longer than 1024 bytes"},

		"label name":          {`{"name":"x","labels":{"a-b":"1"},"counter":{}}`, `"a-b" is not a valid label name: write letters, digits and underscores, no digit and no two underscores first`},
		"label with colon":    {`{"name":"x","labels":{"a:b":"1"},"counter":{}}`, `"a:b" is not a valid label name: write letters, digits and underscores, no digit and no two underscores first`},
		"empty label name":    {`{"name":"x","labels":{"":"1"},"counter":{}}`, `"" is not a valid label name: write letters, digits and underscores, no digit and no two underscores first`},
		"label of Prometheus": {`{"name":"x","labels":{"__name__":"1"},"counter":{}}`, `"__name__" is not a valid label name: write letters, digits and underscores, no digit and no two underscores first`},
		"bucket":              {`{"name":"x","labels":{"le":"1"},"histogram":{}}`, "the label le is reserved in a histogram"},
		"quantile":            {`{"name":"x","labels":{"quantile":"1"},"summary":{}}`, "the label quantile is reserved in a summary"},
		"long label":          {`{"name":"x","labels":{"` + strings.Repeat("a", maxName+1) + `":"1"},"counter":{}}`, "a label's name is longer than 200 bytes"},
		"long value":          {`{"name":"g","labels":{"a":"1","b":"` + strings.Repeat("a", maxLabelValue+1) + `"},"gauge":{}}`, "a label's value is longer than 256 bytes"},
		"many labels":         {`{"name":"x","labels":{` + strings.Join(many, ",") + `},"counter":{}}`, "x has more than 10 labels"},
		"labels later":        {`{"name":"c","labels":{"a":"1"},"counter":{}}`, "cannot change labels of c, which are none"},
		"labels missing":      {`{"name":"g","gauge":{"set":1}}`, "cannot change labels of g, which are a, b"},
		"other labels":        {`{"name":"g","labels":{"a":"1","c":"1"},"gauge":{"set":1}}`, "cannot change labels of g, which are a, b"},

		"count of a histogram":                {`{"name":"h_count","counter":{}}`, "h_count cannot be a counter beside the metric h: both would have series of the same name"},
		"sum of a histogram":                  {`{"name":"h_sum","gauge":{}}`, "h_sum cannot be a gauge beside the metric h: both would have series of the same name"},
		"bucket of a histogram":               {`{"name":"h_bucket","summary":{}}`, "h_bucket cannot be a summary beside the metric h: both would have series of the same name"},
		"count of a summary":                  {`{"name":"s_count","counter":{}}`, "s_count cannot be a counter beside the metric s: both would have series of the same name"},
		"histogram of a bucket":               {`{"name":"h2","histogram":{}}`, "h2 cannot be a histogram beside the metric h2_bucket: both would have series of the same name"},
		"histogram of a sum with an odd text": {`{"name":"s3","histogram":{}}`, "s3 cannot be a histogram beside the metric s3_sum: both would have series of the same name"},
		"summary of a sum":                    {`{"name":"s2","summary":{}}`, "s2 cannot be a summary beside the metric s2_sum: both would have series of the same name"},
	} {
		t.Run(name, func(t *testing.T) {
			h, reg := newHandler(t)
			mustPost(t, h, before...)
			want := values(t, reg)
			got := post(t, h, tt.body)
			if strings.HasSuffix(tt.want, "Go struct field ") { // encoding/json decides how the field is named
				got = got[:min(len(got), len(tt.want))]
			}
			if got != tt.want {
				t.Errorf("refusal %q, want %q", got, tt.want)
			}
			wantValues(t, reg, want)
		})
	}
}

func TestServeHTTP_RefusesOtherMethods(t *testing.T) {
	h, reg := newHandler(t)
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions} {
		w := send(h, method, `{"name":"m","counter":{}}`)
		if w.Code != http.StatusMethodNotAllowed || w.Body.String() != "Method not allowed\n" || w.Header().Get("Allow") != http.MethodPost {
			t.Errorf("%s: %d %q, %v", method, w.Code, w.Body, w.Header())
		}
	}
	wantValues(t, reg, map[string]float64{})
}

func TestServeHTTP_ExposesTypeAndHelpOfTheFirstUse(t *testing.T) {
	h, reg := newHandler(t)
	mustPost(t, h,
		`{"name":"c","description":"Counts\nthings.","counter":{}}`, `{"name":"c","description":"Later.","counter":{}}`,
		`{"name":"g","description":"Goes.","gauge":{"set":0.5}}`,
		`{"name":"h","description":"Hangs.","labels":{"a":"\"1\""},"histogram":{"observe":3}}`,
		`{"name":"s","description":"Sums.","summary":{"observe":2}}`, `{"name":"s","description":"Sums.","histogram":{"observe":2}}`)
	const want = `
# HELP c Counts\nthings.
# TYPE c counter
c 0
# HELP g Goes.
# TYPE g gauge
g 0.5
# HELP h Hangs.
# TYPE h histogram
h_bucket{a="\"1\"",le="0.005"} 0
h_bucket{a="\"1\"",le="0.01"} 0
h_bucket{a="\"1\"",le="0.025"} 0
h_bucket{a="\"1\"",le="0.05"} 0
h_bucket{a="\"1\"",le="0.1"} 0
h_bucket{a="\"1\"",le="0.25"} 0
h_bucket{a="\"1\"",le="0.5"} 0
h_bucket{a="\"1\"",le="1"} 0
h_bucket{a="\"1\"",le="2.5"} 0
h_bucket{a="\"1\"",le="5"} 1
h_bucket{a="\"1\"",le="10"} 1
h_bucket{a="\"1\"",le="+Inf"} 1
h_sum{a="\"1\""} 3
h_count{a="\"1\""} 1
# HELP s Sums.
# TYPE s summary
s_sum 4
s_count 2
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

func TestServeHTTP_SetsToTheCurrentTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, reg := newHandler(t)
		time.Sleep(1500 * time.Millisecond) // on the bubble's clock
		mustPost(t, h, `{"name":"m","gauge":{"set_to_current_time":true}}`)
		wantValues(t, reg, map[string]float64{"m": 946684801.5})
	})
}

// TestServeHTTP_TakesWhatTheModulePosts sends the bodies that the module osdk_metric of operator_sdk.util 0.5.0 posts.
func TestServeHTTP_TakesWhatTheModulePosts(t *testing.T) {
	bodies := must.Get(os.ReadFile("testdata/osdk_metric.jsonl"))(t)
	synctest.Test(t, func(t *testing.T) {
		h, reg := newHandler(t)
		var refusals []string
		lines := bufio.NewScanner(bytes.NewReader(bodies))
		for lines.Scan() {
			if refusal := post(t, h, lines.Text()); refusal != "" {
				refusals = append(refusals, refusal)
			}
		}
		if diff := cmp.Diff([]string{
			"counter metrics cannot decrease in value",
			"cannot change metric type of my_gauge, which is a gauge",
			`"no-name" is not a valid metric name: write letters, digits, underscores and colons, no digit first`,
		}, refusals); diff != "" {
			t.Errorf("refusals (-want +got):\n%s", diff)
		}
		wantValues(t, reg, map[string]float64{
			"my_counter": 4.140000000000001, "my_gauge": 0, "my_time": 946684800,
			"my_histogram_sum": 2, "my_histogram_count": 1, "my_summary_sum": 2, "my_summary_count": 1,
		})
	})
}

// TestServeHTTP_LeavesTheOperatorsMetricsAlone: user metrics cannot break the registry of the operator, and cannot change
// its own metrics.
func TestServeHTTP_LeavesTheOperatorsMetricsAlone(t *testing.T) {
	h, reg := newHandler(t)
	plain := prometheus.NewGauge(prometheus.GaugeOpts{Name: "own_plain", Help: "d"})
	constant := prometheus.NewGauge(prometheus.GaugeOpts{Name: "own_constant", Help: "d", ConstLabels: prometheus.Labels{"a": "1"}})
	// A vector without series is in no result of Gather, but its name is taken.
	labelled := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "own_labelled", Help: "d"}, []string{"a"})
	silent := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "own_silent", Help: "d"}, []string{"a"})
	part := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "own_part_sum", Help: "d"}, []string{"a"})
	reg.MustRegister(plain, constant, labelled, silent, part)

	own := func(name string) string { return name + " is the name of one of the operator's own metrics" }
	beside := func(name, kind, other string) string {
		return fmt.Sprintf("%s cannot be a %s beside the metric %s: both would have series of the same name", name, kind, other)
	}
	for _, tt := range []struct{ body, want string }{
		{`{"name":"own_plain","description":"d","gauge":{"set":5}}`, own("own_plain")},
		{`{"name":"own_plain","description":"other","counter":{"add":5}}`, own("own_plain")},
		{`{"name":"own_constant","description":"d","labels":{"a":"2"},"gauge":{"set":5}}`, own("own_constant")},
		{`{"name":"own_constant","description":"d","gauge":{"set":5}}`, own("own_constant")},
		{`{"name":"own_labelled","description":"d","labels":{"a":"2"},"counter":{"add":5}}`, own("own_labelled")},
		{`{"name":"own_silent","description":"d","labels":{"a":"2"},"histogram":{"observe":5}}`, own("own_silent")},
		{`{"name":"own_silent_count","gauge":{"set":5}}`, beside("own_silent_count", "gauge", "own_silent")},
		{`{"name":"own_silent_bucket","gauge":{"set":5}}`, beside("own_silent_bucket", "gauge", "own_silent")},
		{`{"name":"own_part","summary":{"observe":5}}`, beside("own_part", "summary", "own_part_sum")},
	} {
		if got := post(t, h, tt.body); got != tt.want {
			t.Errorf("%s: refusal %q, want %q", tt.body, got, tt.want)
		}
	}
	labelled.WithLabelValues("x")
	silent.WithLabelValues("x")
	part.WithLabelValues("x")
	wantValues(t, reg, map[string]float64{
		"own_plain": 0, "own_constant{a=1}": 0, "own_labelled{a=x}": 0, "own_silent_sum{a=x}": 0, "own_silent_count{a=x}": 0, "own_part_sum{a=x}": 0,
	})

	// A name that was only asked about is still free.
	mustPost(t, h, `{"name":"free_count","description":"1","gauge":{"set":1}}`)
	later := prometheus.NewGauge(prometheus.GaugeOpts{Name: "free", Help: "d"})
	if err := reg.Register(later); err != nil {
		t.Errorf("a name that no metric has is taken: %v", err)
	}
}

// Existing metrics still work when a limit is reached.
func TestServeHTTP_BoundsMetricsAndTheirLabelValues(t *testing.T) {
	h, reg := newHandler(t)
	for i := range maxMetrics {
		mustPost(t, h, fmt.Sprintf(`{"name":"m%d","labels":{"a":"0"},"counter":{}}`, i))
	}
	for i := range maxSeries {
		mustPost(t, h, fmt.Sprintf(`{"name":"m0","labels":{"a":"%d"},"counter":{}}`, i))
	}
	mustPost(t, h, `{"name":"m1","labels":{"a":"0"},"counter":{"increment":true}}`) // existing metrics still work
	for body, want := range map[string]string{
		`{"name":"x","counter":{}}`:                     "there are 500 user metrics already, and more are not kept: " + ErrFull.Error(),
		`{"name":"m0","labels":{"a":"x"},"counter":{}}`: "m0 has 1000 combinations of label values already, and more are not kept: " + ErrFull.Error(),
	} {
		if got := post(t, h, body); got != want {
			t.Errorf("refusal %q, want %q", got, want)
		}
	}
	mustPost(t, h, `{"name":"m0","labels":{"a":"7"},"counter":{"increment":true}}`)
	if got := values(t, reg)["m0{a=7}"]; got != 1 {
		t.Errorf("m0{a=7} is %v, want 1", got)
	}
	if n := len(values(t, reg)); n != maxMetrics-1+maxSeries {
		t.Errorf("%d series, want %d", n, maxMetrics-1+maxSeries)
	}
}

// If all metrics together reach a limit, existing metrics still work, and refused ones are counted.
func TestServeHTTP_BoundsAllMetricsTogether(t *testing.T) {
	for name, tt := range map[string]struct {
		labels int // labels of each series, besides the first
		kind   kind
		want   string
		kept   int
	}{
		"short labels": {0, counter, "all user metrics together have 10000 combinations of label values already, and more are not kept: ", maxTotal},
		"long labels": {maxLabels - 1, counter, "names, labels and descriptions of all user metrics together would have more than 4194304 bytes: ",
			maxText / (len("m0") + len("l00000") + (maxLabels-1)*(2+maxLabelValue))},
		"histograms": {1, histogram, "names, labels and descriptions of all user metrics together would have more than 4194304 bytes: ",
			maxText / (14 * (len("m0") + len("l00000") + 2 + maxLabelValue))},
	} {
		t.Run(name, func(t *testing.T) {
			var full int
			h, reg := newHandler(t, func(o *Options) { o.Full = func() { full++ } })
			long := strings.Repeat("x", maxLabelValue)
			one := func(i int) string {
				labels := map[string]string{"l": fmt.Sprintf("%05d", i)}
				for n := range tt.labels {
					labels[fmt.Sprintf("l%d", n)] = long
				}
				r := request{Name: fmt.Sprintf("m%d", i/maxSeries), Labels: labels}
				if tt.kind == histogram {
					r.Histogram = &observing{Observe: 1}
				} else {
					r.Counter = &counting{Increment: true}
				}
				body := must.Get(json.Marshal(r))(t)
				return string(body)
			}
			for i := range tt.kept {
				mustPost(t, h, one(i))
			}
			for range 2 {
				if got, want := post(t, h, one(tt.kept)), tt.want+ErrFull.Error(); got != want {
					t.Errorf("refusal %q, want %q", got, want)
				}
			}
			mustPost(t, h, one(0))
			n := len(values(t, reg))
			if tt.kind == histogram {
				n /= 2 // a sum and a count
			}
			if n != tt.kept || full != 2 {
				t.Errorf("%d series, %d refusals; want %d, 2", n, full, tt.kept)
			}
		})
	}
}

func TestServeHTTP_LogsTheFirstUseAndRefusals(t *testing.T) {
	var lines []string
	h, _ := newHandler(t, func(o *Options) {
		o.Log = funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})
	})
	mustPost(t, h, `{"name":"m","counter":{}}`, `{"name":"m","counter":{}}`)
	_ = post(t, h, `{"name":"m","gauge":{}}`)
	if diff := cmp.Diff([]string{
		`"level"=0 "msg"="Registering" "metric"="m"`,
		`"level"=0 "msg"="user metric refused" "reason"="cannot change metric type of m, which is a counter"`,
	}, lines); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
}

func TestServeHTTP_RepeatedRefusalsDoNotFillTheLog(t *testing.T) {
	lines, longest := 0, 0
	h, _ := newHandler(t, func(o *Options) {
		o.Log = funcr.New(func(_, args string) { lines, longest = lines+1, max(longest, len(args)) }, funcr.Options{})
	})
	for range 50 {
		_ = post(t, h, `{"name":"1"}`)
		_ = h.Record([]byte(`{"` + strings.Repeat("x", 20_000) + `":1}`))
	}
	if lines != 10 || longest > 2<<10 {
		t.Errorf("%d lines, the longest has %d bytes", lines, longest)
	}
}

func TestClose_TakesTheMetricsOut(t *testing.T) {
	h, reg := newHandler(t)
	bodies := []string{
		`{"name":"c","counter":{"increment":true}}`, `{"name":"g","gauge":{"increment":true}}`,
		`{"name":"h","labels":{"a":"1"},"histogram":{}}`, `{"name":"s","summary":{}}`,
	}
	mustPost(t, h, bodies...)
	h.Close()
	wantValues(t, reg, map[string]float64{})
	again := New(Options{Registerer: reg, Log: logr.Discard()})
	mustPost(t, again, bodies...)
	if got := slices.Sorted(maps.Keys(values(t, reg))); len(got) != 6 {
		t.Errorf("series of a second handler: %q", got)
	}
}

func TestServeHTTP_IsSafeForConcurrentUse(t *testing.T) {
	h, reg := newHandler(t)
	const workers, rounds = 8, 100
	var posters sync.WaitGroup
	for w := range workers {
		posters.Go(func() {
			for i := range rounds {
				mustPost(t, h,
					`{"name":"all_total","counter":{"increment":true}}`,
					`{"name":"parts_total","counter":{"add":0.5}}`,
					`{"name":"level","gauge":{"increment":true}}`,
					`{"name":"level","gauge":{"subtract":1}}`,
					fmt.Sprintf(`{"name":"each_total","labels":{"worker":"%d"},"counter":{"increment":true}}`, w),
					fmt.Sprintf(`{"name":"round_%d","labels":{"worker":"%d"},"gauge":{"set":1}}`, i, w),
					`{"name":"took","histogram":{"observe":0.25}}`)
				// The second one is refused; which one is second is random.
				_ = post(t, h, fmt.Sprintf(`{"name":"contended_%d","counter":{}}`, i))
				_ = post(t, h, fmt.Sprintf(`{"name":"contended_%d","labels":{"a":""},"gauge":{}}`, i))
			}
		})
	}
	stop, scraped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(scraped)
		last := map[string]float64{}
		for {
			families, err := reg.Gather()
			if err != nil {
				t.Errorf("a reading in between: %v", err)
			}
			for _, f := range families {
				if f.GetType().String() != "COUNTER" || len(f.GetMetric()[0].GetLabel()) > 0 {
					continue
				}
				v := f.GetMetric()[0].GetCounter().GetValue()
				if v < last[f.GetName()] {
					t.Errorf("%s went from %v to %v", f.GetName(), last[f.GetName()], v)
				}
				last[f.GetName()] = v
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	posters.Wait()
	close(stop)
	<-scraped

	got := values(t, reg)
	want := map[string]float64{
		"all_total": workers * rounds, "parts_total": workers * rounds / 2, "level": 0,
		"took_sum": workers * rounds / 4, "took_count": workers * rounds,
	}
	for w := range workers {
		want[fmt.Sprintf("each_total{worker=%d}", w)] = rounds
		for i := range rounds {
			want[fmt.Sprintf("round_%d{worker=%d}", i, w)] = 1
		}
	}
	contended := 0
	for name := range got {
		if strings.HasPrefix(name, "contended_") {
			contended++
			delete(got, name)
		}
	}
	if contended != rounds {
		t.Errorf("%d contended names have a series, want %d", contended, rounds)
	}
	must.Be(t, "metrics", want, got)
}

// FuzzServeHTTP: whatever is posted, one request per line, each request gets an answer. The registry stays readable and
// finite, and the operator's metric unchanged.
func FuzzServeHTTP(f *testing.F) {
	bodies := must.Get(os.ReadFile("testdata/osdk_metric.jsonl"))(f)
	f.Add(string(bodies))
	f.Add(`{"name":"own_seconds_sum","counter":{"add":1}}`)
	f.Add(`{"name":"x","histogram":{}}` + "\n" + `{"name":"x_count","gauge":{}}`)
	f.Add(`{"name":"x","labels":{"le":"a"},"histogram":{}}`)
	f.Add(`{"name":"x","labels":{"a":"\ud800","b":"\u0000"},"summary":{"observe":1e308}}`)
	f.Add(`{"name":"x","counter":{"add":9e18}}` + "\n" + `{"name":"x","counter":{"add":9e18}}`)
	f.Fuzz(func(t *testing.T, text string) {
		h, reg := newHandler(t)
		own := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "own_seconds", Help: "d"}, []string{"a"})
		reg.MustRegister(own)
		for line := range strings.Lines(text) {
			_ = post(t, h, line)
		}
		own.WithLabelValues("x").Observe(1)
		got := values(t, reg)
		if got["own_seconds_sum{a=x}"] != 1 {
			t.Errorf("%q: the operator's metric is gone", text)
		}
		for name, v := range got {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				t.Errorf("%q: %s is %v", text, name, v)
			}
		}
	})
}
