package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rolewright/rolewright/runner/jobevent"
)

// screen writes for people; with colours where there is a terminal.
type screen struct {
	out    io.Writer
	colour bool
}

func newScreen(f *os.File) screen {
	info, err := f.Stat()
	return screen{out: f, colour: err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("NO_COLOR") == ""}
}

func (s screen) line(format string, args ...any) { fmt.Fprintf(s.out, format+"\n", args...) }

func (s screen) chapter(title string) {
	s.line("\n%s", s.paint("1", "▶ "+title))
}

// paint wraps text in an SGR code.
func (s screen) paint(code, text string) string {
	if !s.colour {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (s screen) table(rows [][]string) {
	w := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(w, "  "+strings.Join(row, "\t"))
	}
	_ = w.Flush()
}

// event shows a task's result as it comes.
func (s screen) event(e jobevent.Event, since time.Time) {
	word, code := "", ""
	switch e.Kind {
	case jobevent.RunnerOK:
		word, code = "ok", "32"
		if strings.Contains(string(e.Data.Res), `"changed":true`) || strings.Contains(string(e.Data.Res), `"changed": true`) {
			word, code = "changed", "33"
		}
	case jobevent.RunnerFailed:
		word, code = "failed", "31"
	case jobevent.RunnerSkipped:
		word, code = "skipped", "36"
	default:
		return
	}
	s.line("  %6.1fs  %s  %s", time.Since(since).Seconds(), s.paint(code, fmt.Sprintf("%-7s", word)), e.Data.Task)
}

// describe says what state an object of a list is in.
func describe(list client.ObjectList, item any) child {
	obj := &unstructured.Unstructured{Object: item.(map[string]any)}
	c := child{name: obj.GetName(), owned: len(obj.GetOwnerReferences()) > 0}
	number := func(path ...string) int64 {
		n, _, _ := unstructured.NestedInt64(obj.Object, path...)
		return n
	}
	switch list.(type) {
	case *appsv1.DeploymentList:
		c.kind = "Deployment"
		c.state = fmt.Sprintf("%d of %d available", number("status", "availableReplicas"), number("spec", "replicas"))
	case *corev1.PodList:
		c.kind = "Pod"
		c.state, _, _ = unstructured.NestedString(obj.Object, "status", "phase")
	case *corev1.ServiceList:
		c.kind = "Service"
		c.state, _, _ = unstructured.NestedString(obj.Object, "spec", "clusterIP")
	case *corev1.ConfigMapList:
		data, _, _ := unstructured.NestedMap(obj.Object, "data")
		c.kind, c.state = "ConfigMap", fmt.Sprintf("%d keys", len(data))
	}
	return c
}

// showObjects prints what the role made and what the status says of it.
func (d *demo) showObjects(ctx context.Context) error {
	objects, err := d.children(ctx)
	if err != nil {
		return err
	}
	rows := [][]string{{"OBJECT", "NAME", "STATE"}}
	for _, c := range objects {
		rows = append(rows, []string{c.kind, c.name, c.state})
	}
	d.screen.line("")
	d.screen.table(rows)
	obj, err := d.read(ctx)
	if err != nil {
		return fmt.Errorf("read the sample: %w", err)
	}
	rows = [][]string{{"CONDITION", "STATUS", "REASON", "MESSAGE"}}
	conditions, _, _ := unstructured.NestedSlice(obj.Object, "status", "conditions")
	for _, item := range conditions {
		c, _ := item.(map[string]any)
		rows = append(rows, []string{fmt.Sprint(c["type"]), fmt.Sprint(c["status"]), fmt.Sprint(c["reason"]), fmt.Sprint(c["message"])})
	}
	d.screen.line("")
	d.screen.table(rows)
	return nil
}

// showRuns is the picture at the end.
func (d *demo) showRuns() {
	d.screen.chapter("What happened")
	rows := [][]string{{"RUN", "CAUSE", "GENERATION", "TOOK", "OK", "CHANGED", "RESULT"}}
	for _, r := range d.runs {
		rows = append(rows, []string{r.id[:8], r.cause, fmt.Sprint(r.generation), r.duration, fmt.Sprint(r.ok), fmt.Sprint(r.changed), r.result})
	}
	d.screen.table(rows)
	d.screen.line("\n  3 causes, %d runs, nothing left behind. Try it yourself: `make cluster-up`, then `make run`;", len(d.runs))
	d.screen.line("  break roles/memcached on purpose and see which file and line the status names.")
}
