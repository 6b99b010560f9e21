package trace

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/rolewright/rolewright/internal/history"
	"github.com/rolewright/rolewright/test/must"
)

// A run is a trace. Below the run are its phases, below a phase the tasks that ran in it, and below a task its writes.
func TestTracer_SpansOfARun(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	tracer := must.Get(newTracer(t.Context(), spans, "v1"))(t)
	recorder := history.NewRecorder(nil, tracer)
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	recording := recorder.Begin(history.Run{
		Brief: history.Brief{ID: "1", Cause: "created", Started: at(1), Object: history.Object{Group: "example.com", Kind: "Tea", Namespace: "shop", Name: "it"}},
		Due:   at(0), Prepared: at(2),
	})
	parent := recording.Parent()
	recording.Write(history.Write{At: at(4), Verb: "create", Resource: "configmaps", Name: "a", Code: 201, Result: "created"})
	recording.Task(history.Task{TaskName: history.TaskName{Name: "Create"}, Outcome: "changed", Started: at(3), Finished: at(5)})
	recording.Write(history.Write{At: at(6), Verb: "patch", Resource: "teas", Name: "it", Code: 409, Result: "refused"})
	recording.Task(history.Task{TaskName: history.TaskName{Name: "Fail"}, Outcome: "failed", Message: "no tea\nat all", Started: at(7), Finished: at(8)})
	recording.End(func(run *history.Run) {
		run.Result, run.Reason, run.Message, run.Ended, run.Finished = "Failed", "TaskFailed", "no tea", at(9), at(10)
	})
	must.Do(t, tracer.provider.ForceFlush(t.Context()))

	is := map[string]sdktrace.ReadOnlySpan{}
	for _, span := range spans.GetSpans().Snapshots() {
		is[span.Name()] = span
	}
	for _, want := range []struct{ name, parent, from, to string }{
		{"RUN Tea.example.com", "", "05", "15"},
		{"pending", "RUN Tea.example.com", "05", "07"},
		{"executing", "RUN Tea.example.com", "07", "14"},
		{"Create", "executing", "08", "10"},
		{"create configmaps", "Create", "09", "09"},
		{"patch teas", "executing", "11", "11"},
		{"Fail", "executing", "12", "13"},
		{"finalizing", "RUN Tea.example.com", "14", "15"},
	} {
		span, ok := is[want.name]
		if !ok {
			t.Errorf("there is no span %q", want.name)
			continue
		}
		if above, ok := is[want.parent]; ok && span.Parent().SpanID() != above.SpanContext().SpanID() || !ok && span.Parent().IsValid() {
			t.Errorf("%q is not below %q", want.name, want.parent)
		}
		if from, to := span.StartTime().Format("05"), span.EndTime().Format("05"); from != want.from || to != want.to {
			t.Errorf("%q is from %s to %s, want %s to %s", want.name, from, to, want.from, want.to)
		}
	}
	if len(is) != 8 {
		t.Errorf("%d spans", len(is))
	}
	if executing := is["executing"].SpanContext(); parent != "00-"+executing.TraceID().String()+"-"+executing.SpanID().String()+"-01" {
		t.Errorf("TRACEPARENT is %q", parent)
	}
	for name, want := range map[string]string{"Fail": "no tea", "RUN Tea.example.com": "no tea"} {
		if is := is[name].Status().Description; is != want {
			t.Errorf("the status of %q is %q, want %q", name, is, want)
		}
	}
}

// A run that goes on in another process has no failure in its trace.
func TestTracer_ARunThatGoesOn(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	tracer := must.Get(newTracer(t.Context(), spans, "v1"))(t)
	began := time.Now()
	recording := history.NewRecorder(nil, tracer).Begin(history.Run{
		Brief: history.Brief{ID: "1", Started: began, Object: history.Object{Kind: "Tea"}}, Due: began, Prepared: began,
	})
	recording.Drop(true)
	must.Do(t, tracer.provider.ForceFlush(t.Context()))
	for _, span := range spans.GetSpans().Snapshots() {
		if span.Status().Code == codes.Error || span.EndTime().Before(began) || span.Name() == "finalizing" {
			t.Errorf("%s: status %v, ended at %v", span.Name(), span.Status(), span.EndTime())
		}
		for _, a := range span.Attributes() {
			if a.Key == "cicd.pipeline.result" || a.Key == "error.type" {
				t.Errorf("%s has %s = %q", span.Name(), a.Key, a.Value.AsString())
			}
		}
	}
	must.Be(t, "spans", 3, len(spans.GetSpans()))
}

// A trace that is not sent to a collector is not named in the log or in metrics.
func TestTracer_NamesNoTraceThatIsNotSampled(t *testing.T) {
	t.Setenv("OTEL_TRACES_SAMPLER", "always_off")
	tracer := must.Get(newTracer(t.Context(), tracetest.NewInMemoryExporter(), "v1"))(t)
	recording := history.NewRecorder(nil, tracer).Begin(history.Run{Brief: history.Brief{ID: "1", Started: time.Unix(1, 0)}})
	must.Be(t, "trace", "", recording.TraceID())
}

func TestFromEnvironment_BadValues(t *testing.T) {
	for variable, value := range map[string]string{
		"OTEL_TRACES_EXPORTER": "zipkin", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "smtp",
	} {
		env := map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318", variable: value}
		_, err := FromEnvironment(context.Background(), func(name string) string { return env[name] }, "v1", logr.Discard())
		if err == nil || !strings.Contains(err.Error(), variable) || !strings.Contains(err.Error(), value) {
			t.Errorf("%s=%s: %v", variable, value, err)
		}
	}
}
