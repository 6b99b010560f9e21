package page

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/rolewright/rolewright/internal/api"
	"github.com/rolewright/rolewright/internal/history"
	pages "github.com/rolewright/rolewright/internal/page"
	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/runs"
)

var screenshots = flag.String("screenshots", "", "write screenshots to this directory")

// scene is an operator that has something to show in each view.
type scene struct {
	operator *runs.Operator
	server   string // address of its page
	// failed and worked are runs of one object, well is a run of another object, and live is in progress.
	failed, worked, well, live history.Run
}

// widely returns runs of an object whose durations vary.
func widely(first int, o history.Object, count int, last time.Time) (all []history.Run) {
	for i := range count {
		run := runs.Run(first+i, o, last.Add(-time.Duration(count-i-1)*7*time.Minute))
		run.Finished = run.Finished.Add(time.Duration(i*i%11) * time.Second)
		all = append(all, run)
	}
	return all
}

func newScene(t *testing.T) *scene {
	t.Helper()
	now := time.Now()
	s := &scene{}
	shop, blog := widely(1000, object("shop"), 40, now.Add(-40*time.Second)), widely(2000, object("blog"), 22, now.Add(-4*time.Minute))
	last := len(shop) - 1
	shop[last] = runs.Fail(shop[last], "Status code was 503 and not [200]: HTTP Error 503: Service Unavailable")
	s.worked, s.failed, s.well = shop[last-1], shop[last], blog[len(blog)-1]
	s.operator = runs.New(t, slices.Concat(runs.Many(30, 8), blog, shop)...)
	s.live = runs.Run(3000, object("mail"), now.Add(-2*time.Second))
	recording := s.operator.Recorder.Begin(history.Run{Brief: history.Brief{
		ID: s.live.ID, Object: s.live.Object, Generation: 3, Cause: "changed", Trigger: "spec.replicas", Executor: "warm", Started: s.live.Started,
	}})
	for _, task := range s.live.Tasks[:7] {
		recording.Task(task)
	}
	recording.Write(s.live.Writes[0])
	recording.Now(s.live.Tasks[7].TaskName, history.Counts{OK: 4, Changed: 2, Skipped: 1})
	for i, is := range []api.Waiting{
		{Cause: "deleted", Class: "deletion", Held: "kind"}, {Cause: "changed", Class: "change", Held: "kind"}, {Cause: "created", Class: "change", Held: "kind"},
		{Cause: "period", Class: "period", Held: "urgent"}, {Cause: "period", Class: "period", Held: "urgent"},
		{Cause: "content", Held: "window", Until: now.Add(5 * time.Hour)}, {Cause: "changed", Held: "paused", Until: now.Add(90 * time.Minute)},
	} {
		is.Object, is.Since = object(fmt.Sprintf("example-%02d", 3*i+2)), now.Add(-time.Duration(3+i*i*7)*time.Second)
		if is.Class != "" {
			is.Position = i + 1
		}
		if i == 0 {
			s.operator.Waiting = nil
		}
		s.operator.Waiting = append(s.operator.Waiting, is)
	}
	source := s.operator.Source("")
	source.Get = func(_ context.Context, o history.Object) (map[string]any, error) { return s.status(o, now), nil }
	s.server = runs.Serve(t, source).URL + runs.Base
	return s
}

// status returns the status of an object in the cluster.
func (s *scene) status(o history.Object, now time.Time) map[string]any {
	condition := func(kind, status, reason, message string) any {
		return map[string]any{"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": now.Add(-40 * time.Second).UTC().Format(time.RFC3339)}
	}
	ansible := map[string]any{"dependents": []any{"deployments.v1.apps", "services.v1."}}
	conditions := []any{
		condition("Ready", "True", "RunSucceeded", "Last reconciliation succeeded"), condition("Reconciling", "False", "RunSucceeded", "Awaiting next reconciliation"),
	}
	if o.Name == s.failed.Name {
		ansible["nextRetry"] = now.Add(80 * time.Second).UTC().Format(time.RFC3339)
		conditions = []any{condition("Ready", "False", "TaskFailed", s.failed.Message), condition("Reconciling", "True", "RetryScheduled", "Failed 2 times in a row")}
	}
	return map[string]any{
		"metadata": map[string]any{"name": o.Name, "generation": int64(4)},
		"status":   map[string]any{"observedGeneration": int64(4), "conditions": conditions, "ansible": ansible},
	}
}

// addresses returns the URLs of the images' pages, by the name of the image.
func (s *scene) addresses(t *testing.T) map[string]string {
	t.Helper()
	of := func(r history.Run) string {
		return s.server + "object?" + url.Values{"group": {r.Group}, "kind": {r.Kind}, "namespace": {r.Namespace}, "name": {r.Name}}.Encode()
	}
	run := func(r history.Run) string { return s.server + "run?id=" + r.ID }
	var document bytes.Buffer
	must.Do(t, pages.Report(&document, s.failed, time.Now()))
	report := filepath.Join(t.TempDir(), "report.html")
	must.Do(t, os.WriteFile(report, document.Bytes(), 0o600))
	return map[string]string{
		"objects": s.server, "object-failing": of(s.failed), "object-ready": of(s.well), "run-failed": run(s.failed), "run-running": run(s.live), "run-succeeded": run(s.well),
		"compare": s.server + "compare?a=" + s.worked.ID + "&b=" + s.failed.ID, "queue": s.server + "queue", "trends": s.server + "trends?days=30", "report": "file://" + report,
	}
}

// TestScreenshots makes the images of docs/page.md: each view in both themes.
func TestScreenshots(t *testing.T) {
	if *screenshots == "" {
		t.Skip("no -screenshots")
	}
	s := newScene(t)
	b := open(t, runs.Serve(t, s.operator.Source("")))
	b.do(chromedp.EmulateViewport(760, 940))
	for name, address := range s.addresses(t) {
		b.own = address
		for _, theme := range []string{"light", "dark"} {
			b.theme(theme)
			b.show("")
			if name == "run-running" {
				b.until(numbers(7))
			}
			image := small(t, must.Get(chromedp.Run(b.ctx, chromedp.CaptureScreenshot()))(t))
			if len(image) > maxImage {
				t.Errorf("%s, %s: %d bytes, want at most %d", name, theme, len(image), maxImage)
			}
			must.Do(t, os.WriteFile(filepath.Join(*screenshots, "page-"+name+"-"+theme+".png"), image, 0o644)) // a public image
		}
	}
}

const (
	// maxImage is the largest size of an image in bytes.
	maxImage = 60_000
	// maxColours is the largest number of colours of an image: those of the theme, and of the edges of letters.
	maxColours = 32
)

// small returns an image with only its most frequent colours. They replace the colours that are nearest to them.
func small(t *testing.T, file []byte) []byte {
	t.Helper()
	from := must.Get(png.Decode(bytes.NewReader(file)))(t)
	count := map[color.Color]int{}
	area := from.Bounds()
	for y := area.Min.Y; y < area.Max.Y; y++ {
		for x := area.Min.X; x < area.Max.X; x++ {
			count[from.At(x, y)]++
		}
	}
	var colours color.Palette
	for c := range count {
		colours = append(colours, c)
	}
	slices.SortFunc(colours, func(a, b color.Color) int { return count[b] - count[a] })
	to := image.NewPaletted(area, colours[:min(len(colours), maxColours)])
	nearest := map[color.Color]uint8{}
	for y := area.Min.Y; y < area.Max.Y; y++ {
		for x := area.Min.X; x < area.Max.X; x++ {
			c := from.At(x, y)
			i, known := nearest[c]
			if !known {
				i = uint8(to.Palette.Index(c)) // fits, because there are at most maxColours
				nearest[c] = i
			}
			to.SetColorIndex(x, y, i)
		}
	}
	var small bytes.Buffer
	must.Do(t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&small, to))
	return small.Bytes()
}
