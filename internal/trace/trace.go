// Package trace sends a trace of each run to an OpenTelemetry collector: a span for the
// run, and one for each of its phases, tasks, and writes to the cluster. Spans have names by the
// conventions for CI/CD, https://opentelemetry.io/docs/specs/semconv/cicd/cicd-spans/; spans of
// tasks also follow the callback community.general.opentelemetry.
//
// It is configured by the variables of OpenTelemetry alone,
// https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/, and off
// without an endpoint. Spans are sent in the background; spans that cannot be sent are dropped.
package trace

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	oteltrace "go.opentelemetry.io/otel/trace"
	"golang.org/x/time/rate"

	"github.com/rolewright/rolewright/internal/history"
)

// Tracer makes a trace of each run. It implements [history.Observer], and is safe for
// concurrent use.
type Tracer struct {
	provider *sdktrace.TracerProvider
	tracer   oteltrace.Tracer
}

// FromEnvironment returns the tracer that the OTEL_* variables ask for; nil if they name no
// endpoint for traces. version is the operator's. The error says which variable is wrong. It
// also sets the SDK's error handler, which is global to the process: log gets at most one
// error a minute.
func FromEnvironment(ctx context.Context, getenv func(string) string, version string, log logr.Logger) (*Tracer, error) {
	if !Wanted(getenv) {
		return nil, nil // most operators trace nothing
	}
	exporter, err := newExporter(ctx, getenv)
	if err != nil {
		return nil, err
	}
	said := rate.Sometimes{Interval: time.Minute}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		said.Do(func() {
			log.Info("Traces are not sent: look at the collector, and at OTEL_EXPORTER_OTLP_ENDPOINT", "error", err.Error())
		})
	}))
	return newTracer(ctx, exporter, version)
}

// newTracer returns a tracer that sends spans to exporter.
func newTracer(ctx context.Context, exporter sdktrace.SpanExporter, version string) (*Tracer, error) {
	// The environment's attributes come last, because the last value wins.
	about, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithHost(),
		resource.WithAttributes(semconv.ServiceName("rolewright"), semconv.ServiceVersion(version)), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(about))
	return &Tracer{provider: provider, tracer: provider.Tracer("github.com/rolewright/rolewright", oteltrace.WithInstrumentationVersion(version))}, nil
}

// Wanted reports whether the OTEL_* variables ask for traces.
func Wanted(getenv func(string) string) bool {
	return !strings.EqualFold(getenv("OTEL_SDK_DISABLED"), "true") && getenv("OTEL_TRACES_EXPORTER") != "none" &&
		(getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != "")
}

func newExporter(ctx context.Context, getenv func(string) string) (sdktrace.SpanExporter, error) {
	if exporter := getenv("OTEL_TRACES_EXPORTER"); exporter != "" && exporter != "otlp" {
		return nil, fmt.Errorf("OTEL_TRACES_EXPORTER=%q is not known: leave it out, or set otlp or none", exporter)
	}
	name := "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
	if getenv(name) == "" {
		name = "OTEL_EXPORTER_OTLP_PROTOCOL"
	}
	var client otlptrace.Client
	switch protocol := getenv(name); protocol {
	case "", "http/protobuf":
		client = otlptracehttp.NewClient()
	case "grpc":
		client = otlptracegrpc.NewClient()
	default:
		return nil, fmt.Errorf("%s=%q is not known: set http/protobuf or grpc", name, protocol)
	}
	exporter, err := otlptrace.New(ctx, client)
	if err != nil {
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_*: %w", err)
	}
	return exporter, nil
}

// Serve waits for the end of ctx, and then spends up to a few seconds on sending the remaining spans.
func (t *Tracer) Serve(ctx context.Context) error {
	if t == nil {
		return nil
	}
	<-ctx.Done()
	const patience = 5 * time.Second
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	_ = t.provider.Shutdown(ctx) // spans that cannot be delivered are no reason to fail
	return nil
}

// Begin implements [history.Observer]. Each run has a trace of its own, whatever the
// environment of the operator says.
func (t *Tracer) Begin(run *history.Run) history.Observed {
	from := run.Due
	if from.IsZero() || from.After(run.Started) {
		from = run.Started
	}
	name := "RUN"
	if run.Mode != "" {
		name = "SYNC"
	}
	kind := run.Kind
	if run.Group != "" {
		kind += "." + run.Group
	}
	ctx, root := t.tracer.Start(context.Background(), name+" "+kind, oteltrace.WithNewRoot(), oteltrace.WithTimestamp(from),
		oteltrace.WithSpanKind(oteltrace.SpanKindServer), oteltrace.WithAttributes(
			attribute.String("cicd.pipeline.action.name", name), semconv.CICDPipelineName(kind), semconv.CICDPipelineRunID(run.ID),
			attribute.String("k8s.namespace.name", run.Namespace), attribute.String("rolewright.object.kind", run.Kind),
			attribute.String("rolewright.object.name", run.Name), attribute.String("rolewright.object.uid", run.UID),
			attribute.Int64("rolewright.object.generation", run.Generation), attribute.String("rolewright.cause", run.Cause),
		))
	observed := &Run{tracer: t.tracer, ctx: ctx, tasks: ctx, root: root}
	if !run.Prepared.IsZero() {
		observed.phase("pending", from, run.Prepared)
		observed.tasks, observed.executing = t.tracer.Start(ctx, "executing", oteltrace.WithTimestamp(run.Prepared),
			oteltrace.WithAttributes(attribute.String("cicd.pipeline.run.state", "executing")))
	}
	if root.SpanContext().IsSampled() {
		run.TraceID = root.SpanContext().TraceID().String()
	}
	return observed
}

// Run is the trace of a run. Its methods are not safe for concurrent use.
type Run struct {
	tracer oteltrace.Tracer
	ctx    context.Context // makes a span the parent of others
	root   oteltrace.Span
	// executing is the parent span of tasks; nil for a run that Ansible has not begun.
	executing oteltrace.Span
	tasks     context.Context // as above
	// writes are the writes of the current task.
	writes []history.Write
}

func (r *Run) phase(name string, from, to time.Time) {
	_, span := r.tracer.Start(r.ctx, name, oteltrace.WithTimestamp(from), oteltrace.WithAttributes(attribute.String("cicd.pipeline.run.state", name)))
	span.End(oteltrace.WithTimestamp(to))
}

// Parent returns the value of TRACEPARENT for the processes that the run starts,
// https://www.w3.org/TR/trace-context/#traceparent-header.
func (r *Run) Parent() string {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(r.tasks, carrier)
	return carrier["traceparent"]
}

// Task implements [history.Observed].
func (r *Run) Task(task history.Task) {
	from := task.Started
	if from.IsZero() {
		from = task.Finished
	}
	name := task.Title()
	ctx, span := r.tracer.Start(r.tasks, name, oteltrace.WithTimestamp(from), oteltrace.WithAttributes(
		semconv.CICDPipelineTaskName(name), attribute.String("cicd.pipeline.task.run.result", taskResult(task.Outcome)),
		attribute.String("ansible.task.name", name), attribute.String("ansible.task.module", task.Action),
		attribute.String("ansible.task.result", task.Outcome), attribute.String("ansible.task.host.name", task.Host),
		attribute.String("ansible.role", task.Role), attribute.String("code.file.path", task.Path), attribute.Int("ansible.task.items", task.Items),
	))
	// Parallel hosts share the writes. Writes before the task belong to a task whose end was not seen.
	kept := r.writes[:0]
	for _, w := range r.writes {
		if w.At.Before(from) || w.At.After(task.Finished) {
			kept = append(kept, w)
			continue
		}
		r.write(ctx, w)
	}
	r.writes = kept
	if task.Outcome == "failed" || task.Outcome == "unreachable" {
		first, _, _ := strings.Cut(task.Message, "\n")
		span.SetStatus(codes.Error, first)
	}
	span.End(oteltrace.WithTimestamp(task.Finished))
}

func taskResult(outcome string) string {
	switch outcome {
	case "failed", "unreachable":
		return "failure"
	case "skipped":
		return "skip"
	}
	return "success"
}

// Write implements [history.Observed].
func (r *Run) Write(w history.Write) { r.writes = append(r.writes, w) }

func (r *Run) write(ctx context.Context, w history.Write) {
	_, span := r.tracer.Start(ctx, w.Verb+" "+w.Resource, oteltrace.WithTimestamp(w.At), oteltrace.WithSpanKind(oteltrace.SpanKindClient),
		oteltrace.WithAttributes(
			attribute.String("k8s.namespace.name", w.Namespace), attribute.String("rolewright.write.resource", w.Resource),
			attribute.String("rolewright.write.subresource", w.Subresource), attribute.String("rolewright.write.name", w.Name),
			attribute.String("rolewright.write.result", w.Result), attribute.StringSlice("rolewright.write.fields", w.Fields),
			semconv.HTTPResponseStatusCode(w.Code),
		))
	if w.Result == "refused" {
		span.SetStatus(codes.Error, "")
	}
	span.End(oteltrace.WithTimestamp(w.At))
}

// End implements [history.Observed]. A run without a result goes on without this process: its
// spans end now, and do not say how the run has ended.
func (r *Run) End(run history.Run) {
	for _, w := range r.writes {
		r.write(r.tasks, w)
	}
	if r.executing != nil {
		ended := run.Ended
		if ended.IsZero() {
			ended = run.Finished
		}
		r.executing.End(oteltrace.WithTimestamp(ended))
		if run.Result != "" {
			r.phase("finalizing", ended, run.Finished)
		}
	}
	if run.Result != "" {
		r.conclude(run)
	}
	r.root.End(oteltrace.WithTimestamp(run.Finished))
}

// conclude records how the run has ended.
func (r *Run) conclude(run history.Run) {
	result := runResult(run)
	r.root.SetAttributes(attribute.String("cicd.pipeline.result", result))
	if result != "success" {
		r.root.SetAttributes(attribute.String("error.type", run.Reason))
		first, _, _ := strings.Cut(run.Message, "\n")
		r.root.SetStatus(codes.Error, first)
	}
}

func runResult(run history.Run) string {
	switch {
	case run.Result == "Succeeded":
		return "success"
	case run.Reason == "TimedOut":
		return "timeout"
	case run.Reason == "Cancelled":
		return "cancellation"
	case run.Result == "Interrupted":
		return "error"
	}
	return "failure"
}
