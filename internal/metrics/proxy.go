package metrics

import "github.com/prometheus/client_golang/prometheus"

// proxyMetrics are about requests of runs to the operator.
type proxyMetrics struct {
	proxyRequests  *prometheus.CounterVec
	proxyAnonymous *prometheus.GaugeVec
	anonymous      *prometheus.CounterVec
	userFull       *prometheus.CounterVec
}

func newProxyMetrics(l *list) proxyMetrics {
	return proxyMetrics{
		proxyRequests: l.counter("rolewright_proxy_requests_total",
			"Requests of runs to the API server, by verb, kind (empty: none, or not known) and outcome.",
			"verb", "kind", "outcome"),
		proxyAnonymous: l.gauge("rolewright_proxy_anonymous",
			"1 if the API proxy lets clients without a token act as the operator (--proxy-anonymous), else 0."),
		anonymous: l.counter("rolewright_proxy_anonymous_requests_total",
			"Requests without a token that the API proxy let in."),
		userFull: l.counter("rolewright_user_metrics_refused_total",
			"Metrics of roles that were refused because a limit was reached."),
	}
}

// ProxyRequest counts one request of a run to the API server.
func (r *Recorder) ProxyRequest(verb, kind, outcome string) {
	r.orNone().proxyRequests.WithLabelValues(verb, kind, outcome).Inc()
}

// ProxyAnonymous says whether the API proxy accepts clients without a token.
func (r *Recorder) ProxyAnonymous(allowed bool) {
	r.orNone().proxyAnonymous.WithLabelValues().Set(oneIf(allowed))
}

// AnonymousRequest counts one request without a token that was accepted.
func (r *Recorder) AnonymousRequest() {
	r.orNone().anonymous.WithLabelValues().Inc()
}

// UserMetricRefused counts one metric of a role that was refused because a limit was reached.
func (r *Recorder) UserMetricRefused() {
	r.orNone().userFull.WithLabelValues().Inc()
}
