// Package plan represents fault plans as data: what a campaign does to the operator, in one file per plan that can be kept,
// read and run again.
//
// It knows no cluster and no process. [Generate] makes plans from the requests of a recorded reference run, in the way of
// Sieve (OSDI '22): one for each step of the operator and each thing that can happen to it there. Package wire carries out
// the rules; the operator itself (built with the tag failpoint) carries out the failpoints.
//
// # The file
//
// A plan is JSON or YAML. Unknown fields are errors, and durations are written as in Go ("20s"). The following plan
// kills the operator after the API server has committed the second write of a status, and before the operator learns of
// it. Its successor finds the API server unavailable for three seconds:
//
//	name: spec-change-patch-memcacheds.status-2-crash-after
//	workload: spec-change
//	replicas: 1
//	rules:
//	- match: {verb: patch, resource: memcacheds/status, occurrence: 2}
//	  action: {do: crash-after}
//	- match: {verb: get, resource: memcacheds}
//	  action: {do: unavailable, for: 3s}
//	failpoints:
//	- {name: begin.after-write, do: stop, for: 20s, occurrence: 1}
//
// # Match
//
// A rule counts the requests that fit all given fields of its match: verb (get, list, watch, create, update, patch,
// delete, deletecollection), resource (the plural, with the subresource: memcacheds/status; or the path if there is no
// resource: /version), name of the object, and replica of the operator. An omitted field fits everything. The rule acts on
// the request with the number occurrence, 1 by default, and on the following ones until it has acted times times: once by
// default, without end if it is -1.
//
// The name of an object that is being created is known if the body is JSON.
//
// With event (ADDED, MODIFIED, DELETED, BOOKMARK, or * for any) and the verb watch, the rule counts the events of the watch
// streams, and name is the name of the event's object. The objects with which a streaming list begins are ADDED events.
//
// If several rules apply to the same request or event, the first one acts; all of them have counted it.
//
// # Action
//
//	do                    on         what happens
//	crash-before          any, event the replica gets the signal (KILL unless said); the request is not forwarded, the
//	                                 event not delivered
//	crash-after           any, event the same when the API server has answered and the operator knows nothing of it;
//	                                 when the event is delivered
//	conflict              writes     409, not forwarded
//	throttle              any        429 and Retry-After: 1, not forwarded
//	error                 any        500, not forwarded
//	unavailable           any        503, not forwarded
//	forbid                any        403, not forwarded
//	invalid               writes     422, not forwarded
//	gone                  list,      410 Expired, not forwarded; as an event it ends its watch
//	                      watch,
//	                      event
//	block                 any        requests hang, are not forwarded, and are reset in the end
//	timeout-after-commit  any        forwarded; the answer is 504
//	reset-before          any        the connection is reset, nothing forwarded
//	reset-after           any        forwarded; the connection is reset instead of an answer
//	slow                  any        the answer's first byte comes at once, the others later
//	stale                 get, list, an earlier answer to the same request, the latest that differs from the present
//	                      watch      one; a streaming list begins with it. The rule waits for a request for which there
//	                                 is such an answer.
//	hold-watch            watch,     the stream's events are held, from the one that is named on
//	                      event
//	drop-event            event      it is not delivered, nor any later one of the object; the stream ends with 410, so that
//	                                 the client lists again: no API server hides something for ever
//	duplicate-event       event      it is delivered twice
//	cut-watch             watch,     the stream is cut off, before the event if one is named
//	                      event
//
// With for, the refusals (conflict to gone, reset-before, block) act on everything that matches for that long, from the
// first time on, whatever times says; block requires it. slow and hold-watch require it, too: there it says how long
// something is held. For drop-event, it says after how long the stream ends, and for stale, how long a watch keeps its old
// state; without it, both last until the faults end.
//
// An API server only gives a stale answer to a get if a resource version allows it: what the operator reads before it
// acts, it reads from etcd. No plans are generated for that.
//
// The signal of a crash is KILL, TERM or STOP. After KILL, the connection is gone. After TERM, the request continues. After
// STOP, it is held for the time of for; then the replica gets CONT, and the request continues: like a write that was in
// progress while its sender lost the lease.
//
// Go's HTTP client repeats a read if a connection that has been used before is reset, and client-go waits and repeats it,
// too. So the operator seldom sees a single reset of a read.
//
// # Failpoints
//
// A failpoint is a named place in the operator where it does something (kill, term, stop, panic, sleep) to itself, the
// occurrence-th time, in the named replica or in any. stop and sleep last for the time of for.
package plan
