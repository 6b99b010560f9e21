package page

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/rolewright/rolewright/internal/history"
	pages "github.com/rolewright/rolewright/internal/page"
	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/runs"
)

var axe = flag.String("axe", "", "the file axe.min.js; empty to leave its tests out")

// tab is a tab of a browser.
type tab struct {
	t   *testing.T
	ctx context.Context
	// own is the beginning of the URLs that the tab may request.
	own string

	mu      sync.Mutex
	foreign []string // other URLs that it has requested
}

// open opens a tab that may only reach one server.
func open(t *testing.T, server *httptest.Server) *tab {
	t.Helper()
	program, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatalf("%v; make test-page installs it", err)
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program), chromedp.Flag("disable-component-update", true))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	ctx, cancel := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	b := &tab{t: t, ctx: ctx, own: server.URL + runs.Base}
	must.Do(t, chromedp.Listen(ctx, func(event any) {
		sent, is := event.(*network.EventRequestWillBeSent)
		if !is || strings.HasPrefix(sent.Request.URL, b.own) {
			return
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		b.foreign = append(b.foreign, sent.Request.URL)
	}))
	call(b, network.Enable, network.EnableParams{})
	call(b, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: `window.violations = [];
			document.addEventListener("securitypolicyviolation", (e) => violations.push(e.violatedDirective + " " + e.blockedURI + " " + e.sample));
			window.addEventListener("error", (e) => violations.push("error " + e.message));`})
	return b
}

// call sends a command of the DevTools protocol.
func call[P, R any](b *tab, command cdp.Command[P, R], params P) {
	b.t.Helper()
	must.Get(chromedp.Call(b.ctx, command, params))(b.t)
}

// do runs actions in the tab.
func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
	defer cancel()
	must.Do(b.t, chromedp.Do(ctx, steps...))
}

// show opens a view.
func (b *tab) show(path string) {
	b.t.Helper()
	b.do(chromedp.Navigate(b.own + path))
}

// value returns the value of an expression.
func value[T any](b *tab, expression string) T {
	b.t.Helper()
	return must.Get(chromedp.Run(b.ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise)))(b.t)
}

// evaluate evaluates an expression and ignores its value.
func (b *tab) evaluate(expression string) {
	b.t.Helper()
	b.do(chromedp.Evaluate[chromedp.Void](expression))
}

// until waits until an expression is true.
func (b *tab) until(expression string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
	defer cancel()
	for {
		// A page that is being loaded may have no context yet, or not all of its elements.
		is, err := chromedp.Run(ctx, chromedp.Evaluate[bool](expression))
		if is {
			return
		}
		if ctx.Err() != nil {
			b.t.Fatalf("%s is not true: %v\n%.2000s", expression, err, value[string](b, "document.body.innerText"))
		}
	}
}

// clean fails if the page has violated its policy, run a hostile script, or requested other URLs.
func (b *tab) clean(what string) {
	b.t.Helper()
	if found := value[[]string](b, "[...violations, document.documentElement.dataset.ran].filter(Boolean)"); len(found) > 0 {
		b.t.Errorf("%s: %v", what, found)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.foreign) > 0 {
		b.t.Errorf("%s: it has asked for %v", what, b.foreign)
		b.foreign = nil
	}
}

func object(name string) history.Object {
	return history.Object{Group: "g", Version: "v1", Kind: "Web", Namespace: "shop", Name: name}
}

// views returns the addresses of the views of two runs, by name.
func views(a, b history.Run) map[string]string {
	q := url.Values{"group": {a.Group}, "kind": {a.Kind}, "namespace": {a.Namespace}, "name": {a.Name}}
	return map[string]string{"objects": "", "object": "object?" + q.Encode(), "run": "run?id=" + b.ID, "compare": "compare?a=" + a.ID + "&b=" + b.ID, "trends": "trends?days=30", "queue": "queue"}
}

// The names of objects, tasks and writes have no effect on any view, in a report, or in a page that shows a run live.
func TestHostileTexts(t *testing.T) {
	now := time.Now()
	var all []history.Run
	for i, words := range runs.Hostile() {
		all = append(all, runs.HostileRun(2*i, words, now.Add(-time.Hour)), runs.HostileRun(2*i+1, words, now))
	}
	refuse := func(_ context.Context, o history.Object, _ pages.Asked) (bool, error) {
		return false, errors.New(o.Name)
	}
	b := open(t, runs.ServeActing(t, runs.New(t, all...).Source(""), refuse))
	server := b.own
	const use = `for (const e of document.querySelectorAll("*")) for (const kind of ["mouseover", "focus", "error", "load"]) e.dispatchEvent(new Event(kind))`
	for i, words := range runs.Hostile() {
		for name, path := range views(all[2*i], all[2*i+1]) {
			b.show(path)
			b.evaluate(use)
			b.clean(fmt.Sprintf("%q in %s", words, name))
			if name == "object" {
				b.do(chromedp.Click("button[value=suspend]"))
				b.until(`document.querySelector(".message[role=status]") !== null`)
				b.evaluate(use)
				b.clean(fmt.Sprintf("%q in what is said of an action", words))
			}
		}
		report := filepath.Join(t.TempDir(), "report.html")
		var document bytes.Buffer
		must.Do(t, pages.Report(&document, all[2*i+1], now))
		must.Do(t, os.WriteFile(report, document.Bytes(), 0o600))
		b.own = "file://" + report
		b.show("")
		b.evaluate(use)
		b.clean(fmt.Sprintf("%q in a report", words))
		if value[string](b, "getComputedStyle(document.body).fontFamily") != "system-ui, sans-serif" {
			t.Error("the report has no style")
		}
		b.own = server
	}
}

// A click on a button does what the button says, with scripts and without.
func TestActions(t *testing.T) {
	var mu sync.Mutex
	asked := ""
	act := func(_ context.Context, o history.Object, by pages.Asked) (bool, error) {
		mu.Lock()
		defer mu.Unlock()
		asked += by.Do + " " + o.Namespace + "/" + o.Name + "\n"
		return by.Do != "resume", nil
	}
	run := runs.Run(1, object("shop"), time.Now())
	b := open(t, runs.ServeActing(t, runs.New(t, run).Source(""), act))
	for _, off := range []bool{false, true} {
		call(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: off})
		for do, says := range map[string]string{"suspend-1h": "No run starts for an hour.", "resume": "The object was not suspended."} {
			mu.Lock()
			asked = ""
			mu.Unlock()
			b.show(views(run, run)["object"])
			b.do(chromedp.Click("button[value=" + do + "]"))
			b.until(`document.querySelector(".message[role=status]")?.textContent === "` + says + `"`)
			mu.Lock()
			must.Be(t, "asked for", do+" shop/shop\n", asked)
			mu.Unlock()
			b.clean(do)
			if !off { // otherwise a reload would show the message again
				b.until(`!/did|idle/.test(location.search)`)
			}
		}
	}
}

// step records the end of a task of a run.
func step(x *history.Recording, n int, words string) {
	at := time.Now()
	x.Task(history.Task{
		TaskName: history.TaskName{Name: fmt.Sprintf("%s %d", words, n), Role: words, Path: words, Host: words}, Action: words, Message: words,
		Outcome: []string{"ok", "changed", "failed", "skipped"}[n%4], Started: at, Finished: at,
	})
}

// numbers returns an expression that is true if a page has the rows of n tasks, numbered from 0, each once.
func numbers(n int) string {
	return fmt.Sprintf(`(() => { const is = [...document.querySelectorAll("[data-rows=task] tr")].map((r) => Number(r.dataset.number));
		return is.length === %d && is.every((n, i) => n === i); })()`, n)
}

// early is a source whose events start before the end of what it has of a run. This happens if a task ends while the run
// is read.
type early struct{ *pages.Remote }

func (e early) Run(ctx context.Context, id string) (history.Run, string, error) {
	run, cursor, err := e.Remote.Run(ctx, id)
	if err != nil {
		return run, cursor, err
	}
	n, err := strconv.Atoi(cursor)
	return run, strconv.Itoa(n - min(len(run.Tasks), 5)), err
}

// Each task of a run in progress appears once, with a slow processor, lost connections on both sides, and a restart of the
// operator.
func TestLive(t *testing.T) {
	o := runs.New(t)
	server := runs.Serve(t, early{o.Source("")})
	b := open(t, server)
	started := time.Now()
	brief := history.Brief{ID: "live-run", Object: object("shop"), Cause: "changed", Trigger: "spec.size", Started: started}
	x := o.Recorder.Begin(history.Run{Brief: brief})
	for n := range 20 {
		step(x, n, "early")
	}
	call(b, emulation.SetCPUThrottlingRate, emulation.SetCPUThrottlingRateParams{Rate: 4})
	b.show("run?id=live-run")
	b.until(numbers(20))
	b.evaluate("window.same = true")
	for n := 20; n < 200; n++ {
		switch n {
		case 60:
			b.until(numbers(60))
			server.CloseClientConnections()
		case 120:
			o.Cut()
		case 150:
			b.until(numbers(150))
			o.Cut()
			server.CloseClientConnections()
		}
		step(x, n, runs.Hostile()[n%len(runs.Hostile())])
	}
	x.Write(history.Write{Verb: "create", Resource: "configmaps", Namespace: "shop", Name: "it", Code: 201, Result: "created"})
	b.until(numbers(200))
	b.until(`document.querySelector("[data-rows=write]").textContent.includes("shop/it")`)
	if !value[bool](b, "window.same") {
		t.Error("the page was loaded again for tasks")
	}
	if folded := value[string](b, `document.querySelector("[data-quiet]").textContent`); folded != "100" {
		t.Errorf("%s tasks are folded, want 100", folded)
	}
	b.clean("the tasks")

	o.Restart()
	run := history.Run{Brief: brief, Message: "the operator has ended"}
	run.Result, run.Reason, run.Finished = "Interrupted", "RunInterrupted", time.Now()
	for n := range 200 {
		run.Tasks = append(run.Tasks, history.Task{TaskName: history.TaskName{Name: fmt.Sprint(n)}, Outcome: "ok"})
	}
	o.Store.Add(run)
	b.until(`document.body.innerText.includes("RunInterrupted")`)
	b.until(numbers(200))

	brief.ID, brief.Started = "next-run", time.Now()
	b.show("")
	x = o.Recorder.Begin(history.Run{Brief: brief})
	b.until(`document.querySelector("[data-status]").textContent.includes("1 runs have started")`)
	b.show("run?id=next-run")
	step(x, 0, "last")
	b.until(numbers(1))
	x.End(func(r *history.Run) { r.Result, r.Reason, r.Finished = "Succeeded", "RunSucceeded", time.Now() })
	b.until(`document.body.innerText.includes("RunSucceeded")`)
	b.until(numbers(1))
	b.clean("the end")
}

// some returns an operator that has objects in all states, and two runs of one of these objects.
func some(t *testing.T) (o *runs.Operator, worked, failed history.Run) {
	t.Helper()
	now := time.Now()
	var all []history.Run
	for i := range 40 {
		run := runs.Run(1000+i, object("shop"), now.Add(-time.Duration(60-i)*time.Minute))
		run.Finished = run.Finished.Add(time.Duration(i%7) * time.Second)
		if i == 38 {
			worked = run
		}
		if i == 39 {
			run = runs.Fail(run, "Status code was 503 and not [200]: HTTP Error 503: Service Unavailable")
			failed = run
		}
		all = append(all, run)
	}
	return runs.New(t, append(runs.Many(30, 8), all...)...), worked, failed
}

// withButtons serves a page whose buttons have no effect.
func withButtons(t *testing.T, o *runs.Operator) *httptest.Server {
	t.Helper()
	return runs.ServeActing(t, o.Source(""), func(context.Context, history.Object, pages.Asked) (bool, error) { return true, nil })
}

// At a width of 320 pixels nothing has to be scrolled sideways. The rows can be reached by keyboard.
func TestNarrow(t *testing.T) {
	o, worked, failed := some(t)
	b := open(t, withButtons(t, o))
	b.do(chromedp.EmulateViewport(320, 800))
	for name, path := range views(worked, failed) {
		b.show(path)
		if width := value[int](b, "document.documentElement.scrollWidth"); width > 320 {
			wide := value[[]string](b, `[...document.querySelectorAll("body *")].filter((e) => e.getBoundingClientRect().right > 321).map((e) => e.outerHTML.slice(0, 100))`)
			t.Errorf("%s is %d pixels wide: %q", name, width, wide)
		}
		b.clean(name)
	}
	const focused = "(document.activeElement.textContent || document.activeElement.name || document.activeElement.id)"
	first := "document.querySelectorAll('[data-row]')"
	b.show("")
	for _, key := range []struct{ press, at string }{
		{"j", first + "[0].textContent"}, {"j", first + "[1].textContent"}, {"k", first + "[0].textContent"}, {"/", "'q'"},
	} {
		b.do(chromedp.KeyEvent(key.press))
		b.until(focused + " === " + key.at)
	}
	b.show(views(worked, failed)["run"])
	b.do(chromedp.KeyEvent("f"))
	b.until("document.activeElement.id === 'failure'")
}

// Without scripts the page shows everything, folded tasks can be opened, and the page of a run in progress reloads.
func TestWithoutScript(t *testing.T) {
	o, worked, failed := some(t)
	x := o.Recorder.Begin(history.Run{Brief: history.Brief{ID: "live-run", Object: object("shop"), Started: time.Now()}})
	b := open(t, o.Serve(t))
	call(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	for name, path := range views(worked, failed) {
		b.show(path)
		if text := value[string](b, "document.querySelector('main').innerText"); len(text) < 100 {
			t.Errorf("%s says %q", name, text)
		}
	}
	b.show(views(worked, failed)["run"])
	const shown = "[...document.querySelectorAll('.quiet')].every((e) => e.getClientRects().length === %d)"
	b.until(fmt.Sprintf(shown, 0))
	b.do(chromedp.Click(".fold input"))
	b.until(fmt.Sprintf(shown, 1))
	b.show("run?id=live-run")
	step(x, 0, "it")
	b.until(numbers(1))
}

// axe finds no problems on the views, in both themes.
func TestAccessibility(t *testing.T) {
	if *axe == "" {
		t.Skip("no -axe")
	}
	source := string(must.Get(os.ReadFile(*axe))(t))
	o, worked, failed := some(t)
	b := open(t, withButtons(t, o))
	call(b, page.SetBypassCSP, page.SetBypassCSPParams{Enabled: true}) // for axe
	for name, path := range views(worked, failed) {
		for _, theme := range []string{"light", "dark"} {
			b.theme(theme)
			b.show(path)
			b.evaluate(source)
			if found := value[[]string](b, `axe.run({runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}).then((r) => r.violations.map((v) => [v.id, v.help, ...v.nodes.slice(0, 3).map((n) => n.html + n.failureSummary)].join("\n")))`); len(found) > 0 {
				t.Errorf("%s, %s: %s", name, theme, strings.Join(found, "\n"))
			}
		}
	}
}

func (b *tab) theme(theme string) {
	b.t.Helper()
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}}})
}
