package metrics

import (
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// createdObjects is the collector for the creation time of each watched object. There can be tens of thousands of
// objects: a [prometheus.GaugeVec] would keep a kibibyte for each; this collector makes the labels when it is read.
type createdObjects struct {
	desc *prometheus.Desc

	mu sync.Mutex
	at map[createdObject]int64
}

type createdObject struct {
	gvk             schema.GroupVersionKind
	namespace, name string
}

func newCreatedObjects() *createdObjects {
	return &createdObjects{
		desc: prometheus.NewDesc("resource_created_at_seconds", "When a watched object was created, in Unix time.",
			[]string{"group", "version", "kind", "namespace", "name"}, nil),
		at: map[createdObject]int64{},
	}
}

func (c *createdObjects) set(object createdObject, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at[object] = at.Unix()
}

func (c *createdObjects) remove(object createdObject) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.at, object)
}

// Describe implements [prometheus.Collector].
func (c *createdObjects) Describe(ch chan<- *prometheus.Desc) { ch <- c.desc }

// Collect implements [prometheus.Collector].
func (c *createdObjects) Collect(ch chan<- prometheus.Metric) {
	c.mu.Lock()
	at := maps.Clone(c.at) // the reader may be slow
	c.mu.Unlock()
	for o, seconds := range at {
		ch <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, float64(seconds), o.gvk.Group, o.gvk.Version, o.gvk.Kind, o.namespace, o.name)
	}
}
