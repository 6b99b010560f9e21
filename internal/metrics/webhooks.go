package metrics

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// WebhookResult says how the operator answered the API server.
type WebhookResult string

// The results of a request of the API server.
const (
	WebhookAllowed   WebhookResult = "allowed"
	WebhookRefused   WebhookResult = "refused"
	WebhookConverted WebhookResult = "converted"
	// WebhookFailed: there was no answer, and the failure policy applies.
	WebhookFailed WebhookResult = "failed"
)

func newWebhooks(l *list) *prometheus.HistogramVec {
	// The API server waits for up to 10 seconds, and up to 30 for a conversion.
	return l.histogram("rolewright_webhook_duration_seconds",
		"How long the operator took to answer the API server, by webhook (validate, mutate, convert, or unknown: no watch has it) and result (allowed, refused, converted, or failed: without an answer).",
		slices.Concat(prometheus.DefBuckets, []float64{30}), "group", "kind", "webhook", "result")
}

// Webhook measures one answer to the API server about a watched kind.
func (r *Recorder) Webhook(kind schema.GroupKind, webhook string, result WebhookResult, took time.Duration) {
	r.orNone().webhooks.WithLabelValues(kind.Group, kind.Kind, webhook, string(result)).Observe(took.Seconds())
}
