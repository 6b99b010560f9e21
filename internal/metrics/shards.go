package metrics

import "github.com/prometheus/client_golang/prometheus"

// shardMetrics are about this replica's share of the objects. Without shards, they have
// no series.
type shardMetrics struct {
	all, held, objects *prometheus.GaugeVec
	handovers          *prometheus.CounterVec
}

func newShardMetrics(l *list) shardMetrics {
	return shardMetrics{
		all:       l.gauge("rolewright_shards", "How many shards there are, of all replicas together (--shards); no series without the flag."),
		held:      l.gauge("rolewright_shards_held", "How many shards this replica holds (--shards); no series without the flag."),
		objects:   l.gauge("rolewright_shard_objects", "How many objects are in the shards that this replica holds (--shards)."),
		handovers: l.counter("rolewright_shard_handovers_total", "Shards that this replica has taken, or given up (--shards).", "direction"),
	}
}

// Shards says how many shards there are, how many of them this replica holds, and how many objects those have.
func (r *Recorder) Shards(all, held, objects int) {
	r = r.orNone()
	r.shards.all.WithLabelValues().Set(float64(all))
	r.shards.held.WithLabelValues().Set(float64(held))
	r.shards.objects.WithLabelValues().Set(float64(objects))
}

// ShardMoved counts a shard that this replica has taken, or given up.
func (r *Recorder) ShardMoved(taken bool) {
	r.orNone().shards.handovers.WithLabelValues(either(taken, "taken", "given-up")).Inc()
}
