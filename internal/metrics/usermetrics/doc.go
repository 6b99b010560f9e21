// Package usermetrics lets roles and playbooks record their own metrics: it is a
// small HTTP endpoint to which the module osdk_metric posts, as in
// operator-framework's ansible-operator.
//
// It knows requests, metrics and their bounds. It does not know which client
// posts, where it listens or where metrics are read; the caller passes listener
// and registerer.
//
// # Requests
//
// A request is POST /metrics with one JSON object:
//
//	{"name": "backups_total", "description": "Backups taken.", "labels": {"tier": "gold"}, "counter": {"increment": true}}
//
// It has exactly one of
//
//	counter:   increment, add
//	gauge:     increment, decrement, add, subtract, set, set_to_current_time
//	histogram: observe
//	summary:   observe
//
// and of several operations the first in this order that has an effect counts;
// setting a gauge to 0 has an effect. A counter or gauge without operation exists
// from then on, with the value 0; a missing observation is 0. The first use of a
// metric determines its type, help and label names, except that histograms and
// summaries accept each other's observations. Null counts as missing everywhere.
//
// The answer is 200 without a body, or 400 with the reason as text, and then
// nothing has changed. The texts are ansible-operator's, if it has one.
//
// # Differences
//
// Labels are an addition. ansible-operator breaks down under concurrent
// requests, cannot set a gauge to 0, and answers 200 where a name cannot be
// used; and a client that posts can make it hold any number of metrics.
package usermetrics
