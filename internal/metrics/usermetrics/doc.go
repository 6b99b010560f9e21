// Package usermetrics lets roles and playbooks record metrics of their own: a
// small HTTP endpoint to which the module osdk_metric posts, as
// operator-framework's ansible-operator has it.
//
// It knows requests, metrics and their bounds. It does not know who posts,
// where it listens or where metrics are read; listener and registerer are the
// caller's.
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
// to set a gauge to 0 is one. A counter or gauge without operation exists from
// then on, with the value 0; an observation that is missing is 0. Type, help
// and label names of a metric are those of its first use, except that
// histograms and summaries take each other's observations. Null is missing
// everywhere.
//
// The answer is 200 without a body, or 400 with the reason as text, and then
// nothing has changed. Texts that ansible-operator has are the same here.
//
// # Differences
//
// Labels are an addition. ansible-operator breaks down under concurrent
// requests, cannot set a gauge to 0, and answers 200 where a name cannot be
// used; and a client that posts can make it hold any number of metrics.
package usermetrics
