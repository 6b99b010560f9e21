package metrics

import "github.com/prometheus/client_golang/prometheus"

// jobMetrics are about the Pods of runs. Without the executor job, they have no series.
type jobMetrics struct {
	connections *prometheus.GaugeVec
	refused     *prometheus.CounterVec
}

func newJobMetrics(l *list) jobMetrics {
	return jobMetrics{
		connections: l.gauge("rolewright_job_connections", "How many connections the Pods of runs have to the operator (executor job)."),
		refused: l.counter("rolewright_job_connections_limited_total",
			"How often the limit of connections of Pods of runs was reached, so that a connection was refused or the next one had to wait (executor job)."),
	}
}

// JobConnections says how many connections the Pods of runs have. limited is true if one was refused because there were too
// many.
func (r *Recorder) JobConnections(open int, limited bool) {
	r = r.orNone()
	r.jobs.connections.WithLabelValues().Set(float64(open))
	if limited {
		r.jobs.refused.WithLabelValues().Inc()
	}
}
