package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

// collected is the part of the collector's output that the test reads:
// https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding.
type collected struct {
	ResourceSpans []struct {
		Resource   struct{ Attributes []keyValue }
		ScopeSpans []struct{ Spans []span }
	}
}

type span struct {
	TraceID, SpanID, ParentSpanID, Name string
	Attributes                          []keyValue
}

type keyValue struct {
	Key   string
	Value struct{ StringValue string }
}

// A collector gets each run as a trace, with both protocols, and programs that the run starts can add to it.
func TestTraces_ReachACollector(t *testing.T) {
	t.Parallel()
	needAnsible(t)
	collector := absolute(t, "bin/tools/otelcol")
	if _, err := os.Stat(collector); err != nil {
		t.Fatalf("the collector is not built: run `make client-tools`: %v", err)
	}
	overHTTP, overGRPC := testenv.Address(t), testenv.Address(t)
	path := filepath.Join(t.TempDir(), "collected.json")
	out := must.Get(os.Create(path))(t)
	cmd := exec.Command(collector, "--config=yaml:"+fmt.Sprintf(
		"{receivers: {otlp: {protocols: {http: {endpoint: '%s'}, grpc: {endpoint: '%s'}}}}, exporters: {stdout: {}}, "+
			"service: {telemetry: {metrics: {level: none}}, pipelines: {traces: {receivers: [otlp], exporters: [stdout]}}}}", overHTTP, overGRPC))
	cmd.Stdout, cmd.Stderr = out, os.Stderr
	must.Do(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })

	s := newStage(t)
	s.role("main", `- name: Tell the trace
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: trace, namespace: "{{ ansible_operator_meta.namespace }}"}
      data: {parent: "{{ lookup('env', 'TRACEPARENT') }}", size: "{{ size }}"}
`)
	k := s.kind()
	s.watch(k, "role: main")
	client := must.Get(kubernetes.NewForConfig(s.cfg))(t)
	parent := func() string {
		t.Helper()
		return must.Get(client.CoreV1().ConfigMaps(s.namespace).Get(t.Context(), "trace", metav1.GetOptions{}))(t).Data["parent"]
	}
	for n, protocol := range []string{"http/protobuf", "grpc"} {
		endpoint := map[string]string{"grpc": overGRPC, "http/protobuf": overHTTP}[protocol]
		s.env = append(s.env, "OTEL_EXPORTER_OTLP_ENDPOINT=http://"+endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL="+protocol, "OTEL_SERVICE_NAME=tea")
		o := s.start("--log-format=json")
		size := fmt.Sprint(n)
		if n == 0 {
			k.create("it", map[string]any{"size": size})
		} else {
			k.patch("it", `{"spec": {"size": "`+size+`"}}`)
		}
		k.awaitReady("it")
		testenv.Eventually(t, protocol+": the time that the run took leads to its trace", func(ctx context.Context) error {
			return o.exemplar(ctx, "rolewright_phase_duration_seconds_bucket", `phase="run"`, traceOf(parent()))
		})
		o.stop()
		testenv.Eventually(t, protocol+": the trace is whole", func(context.Context) error {
			return wholeTrace(string(must.Get(os.ReadFile(path))(t)), parent())
		})
		if err := linesOfRun(o.output(), traceOf(parent())); err != nil {
			t.Errorf("%v:\n%s", err, o.output())
		}
	}
}

// linesOfRun checks that each line of the log is a JSON object, and that the lines of the run of the trace have the same
// keys.
func linesOfRun(log, trace string) error {
	said := map[string]string{}
	for in := bufio.NewScanner(strings.NewReader(log)); in.Scan(); {
		var line struct {
			Msg, Namespace, Name, Group, Kind, Run, Job, Task, Role, Path, Result, Duration string
			Trace                                                                           string `json:"trace_id"`
		}
		if err := json.Unmarshal(in.Bytes(), &line); err != nil {
			return fmt.Errorf("%q: %w", in.Text(), err)
		}
		switch ended := line.Msg == "Task ended"; {
		case line.Trace != trace:
		case line.Namespace == "" || line.Name != "it" || line.Group == "" || line.Kind == "" || line.Run == "" || line.Job != "",
			ended && (line.Task == "" || line.Role != "main" || line.Path == "" || line.Result == "" || line.Duration == ""):
			return fmt.Errorf("keys are missing: %s", in.Text())
		default:
			said[line.Msg] = line.Result
		}
	}
	if said["Task ended"] != "changed" || said["Ansible-runner exited successfully"] != "Succeeded" {
		return fmt.Errorf("the run is logged as %v", said)
	}
	return nil
}

// exemplar checks that a series of the metric has the trace as its exemplar.
func (o *operator) exemplar(ctx context.Context, metric, label, trace string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, o.metrics, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "application/openmetrics-text; version=1.0.0")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if is := res.Header.Get("Content-Type"); !strings.HasPrefix(is, "application/openmetrics-text") {
		return fmt.Errorf("the metrics are %s", is)
	}
	for in := bufio.NewScanner(res.Body); in.Scan(); {
		if line := in.Text(); strings.HasPrefix(line, metric+"{") && strings.Contains(line, label) && strings.Contains(line, `# {trace_id="`+trace+`"}`) {
			return nil
		}
	}
	return fmt.Errorf("no series of %s leads to the trace %s", metric, trace)
}

// traceOf returns the trace of a TRACEPARENT.
func traceOf(parent string) string {
	if parts := strings.Split(parent, "-"); len(parts) == 4 {
		return parts[1]
	}
	return "none in " + parent
}

// wholeTrace checks that the trace that parent names has arrived, with its task and its write.
func wholeTrace(lines, parent string) error {
	spans, service := map[string]span{}, ""
	for in := bufio.NewScanner(strings.NewReader(lines)); in.Scan(); {
		var c collected
		if err := json.Unmarshal(in.Bytes(), &c); err != nil {
			return fmt.Errorf("%q: %w", in.Text(), err)
		}
		for _, r := range c.ResourceSpans {
			for _, a := range r.Resource.Attributes {
				if a.Key == "service.name" {
					service = a.Value.StringValue
				}
			}
			for _, scope := range r.ScopeSpans {
				for _, s := range scope.Spans {
					if s.TraceID == traceOf(parent) {
						spans[s.Name] = s
					}
				}
			}
		}
	}
	if service != "tea" {
		return fmt.Errorf("the service is %q", service)
	}
	task, write := spans["main : Tell the trace"], spans["create configmaps"]
	if write.SpanID == "" {
		write = spans["patch configmaps"]
	}
	if task.SpanID == "" || write.ParentSpanID != task.SpanID || !strings.Contains(parent, "-"+task.ParentSpanID+"-") {
		return errors.New(lines)
	}
	return nil
}
