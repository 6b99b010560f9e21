package page_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/rolewright/rolewright/internal/api"
	"github.com/rolewright/rolewright/internal/history"
	"github.com/rolewright/rolewright/internal/page"
	"github.com/rolewright/rolewright/internal/text"
	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/runs"
)

// answer is the answer of a server.
type answer struct {
	Code   int
	Header http.Header
	Body   string
}

// get requests a path below the base.
func get(t testing.TB, server *httptest.Server, path string, change func(*http.Request)) answer {
	t.Helper()
	r := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+runs.Base+path, nil))(t)
	if change != nil {
		change(r)
	}
	resp := must.Get(server.Client().Do(r))(t) //nolint:bodyclose // the next line does
	defer resp.Body.Close()
	return answer{resp.StatusCode, resp.Header, string(must.Get(io.ReadAll(resp.Body))(t))}
}

func object(name string) history.Object {
	return history.Object{Group: "g", Version: "v1", Kind: "Web", Namespace: "shop", Name: name}
}

// views returns the paths of all views of two runs of an object.
func views(a, b history.Run) []string {
	q := url.Values{"group": {a.Group}, "kind": {a.Kind}, "namespace": {a.Namespace}, "name": {a.Name}}
	return []string{"", "object?" + q.Encode(), "run?id=" + b.ID, "compare?a=" + a.ID + "&b=" + b.ID, "trends?days=30", "report?id=" + b.ID, "queue"}
}

func TestPage_Shows(t *testing.T) {
	t.Parallel()
	now := time.Now()
	good, bad := runs.Run(1, object("shop"), now.Add(-5*time.Hour)), runs.Fail(runs.Run(2, object("shop"), now.Add(-270*time.Minute)), "no answer")
	fine, gone := runs.Run(3, object("blog"), now.Add(-time.Minute)), runs.Run(4, object("gone"), now)
	gone.Cause = "deleted"
	o := runs.New(t, good, bad, fine, gone)
	o.Recorder.Begin(history.Run{Brief: history.Brief{ID: "now-run", Object: object("busy"), Cause: "created", Started: now}})
	server := o.Serve(t)
	pages := map[string]string{}
	for _, path := range append(views(good, bad), "run?id=now-run", "?q=ANSWER", "?q=blog&state=3") {
		a := get(t, server, path, nil)
		if a.Code != http.StatusOK {
			t.Fatalf("%s: %d\n%s", path, a.Code, a.Body)
		}
		pages[path] = plain(a.Body)
	}
	paths := views(good, bad)
	for path, wants := range map[string][]string{
		paths[0]:          {"all 3", "× failing 1", "… running 1", "✓ fine 1", "shop Web.g in shop", "since 4h"},
		paths[1]:          {"× failing", "a retry,", "Ready False TaskFailed in shop", "Reconciling", "deployments.v1.apps", "Web is an example", "Its last 2 runs"},
		paths[2]:          {"Failed: web : Read the version", "no answer", "- name: Read the version", "web : Create the Service", "± changed deployments.apps shop/shop spec.replicas web :", "Compare with the last success", "queue 1.00 s", "rolewright describe run"},
		paths[3]:          {"result RunSucceeded TaskFailed", "version of ansible-core 2.19.4 2.14.18", "web : Read the version roles/web/tasks/main.yml localhost #3 ok failed: no answer"},
		paths[4]:          {"5 runs in 30 days", "changed 1", "web : Read the version 1"},
		paths[5]:          {"no answer", "web : Create the Service"},
		paths[6]:          {"1 gone Web.g in shop deleted deleted"},
		"run?id=now-run":  {"in progress", "Nothing so far"},
		"?q=ANSWER":       {"No object matches"},
		"?q=blog&state=3": {"1 object,", "blog"},
	} {
		for _, want := range wants {
			if !strings.Contains(pages[path], want) {
				t.Errorf("%s says\n%s\nwant %q", path, pages[path], want)
			}
		}
	}
	if strings.Contains(pages[paths[0]], "gone") {
		t.Error("an object that is deleted is shown")
	}
	if all := pages[paths[0]]; strings.Index(all, "shop Web") > strings.Index(all, "busy Web") || strings.Index(all, "busy Web") > strings.Index(all, "blog Web") {
		t.Errorf("what fails is not first, or what runs not second:\n%s", all)
	}
	for path, code := range map[string]int{
		"run?id=none": 404, "run?id=..": 400, "run": 400, "object?kind=Web&name=none": 404, "object": 400, "trends?days=x": 400, "?from=-1": 400, "other": 404, "report?id=none": 404,
	} {
		if a := get(t, server, path, nil); a.Code != code {
			t.Errorf("%s: %d, want %d\n%s", path, a.Code, code, a.Body)
		}
	}
}

// elsewhere is a source that belongs to another replica.
type elsewhere struct {
	*page.Remote
	meta api.ListMeta
}

func (s elsewhere) Runs(ctx context.Context) ([]history.Brief, api.ListMeta, error) {
	list, _, err := s.Remote.Runs(ctx)
	return list, s.meta, err
}

func (s elsewhere) Queue(context.Context) (api.Queue, error) {
	return api.Queue{Metadata: api.QueueMeta{Leads: s.meta.Leads, Shards: s.meta.Shards}}, nil
}

// If a replica does not have all runs, views of many runs say whose runs they show.
func TestPage_SaysWhoseRuns(t *testing.T) {
	t.Parallel()
	a, b := runs.Run(1, object("shop"), time.Now().Add(-time.Hour)), runs.Run(2, object("shop"), time.Now())
	source := runs.New(t, a, b).Source("")
	all := views(a, b)
	for _, path := range []string{all[0], all[1], all[4], all[6]} {
		for want, meta := range map[string]api.ListMeta{
			"This replica makes no runs: another one has the ":              {},
			"of the replica pod-0, which holds 1 of 2 shards: each replica": {Leads: true, Shards: &api.Shards{Replica: "pod-0", Holders: []string{"pod-0", "pod-1"}}},
		} {
			if is := plain(get(t, runs.Serve(t, elsewhere{source, meta}), path, nil).Body); !strings.Contains(is, want) {
				t.Errorf("%s says\n%s\nwant %q", path, is, want)
			}
		}
		if is := plain(get(t, runs.Serve(t, source), path, nil).Body); strings.Contains(is, "This ") {
			t.Errorf("%s says\n%s", path, is)
		}
	}
}

// plain returns the text of a document.
func plain(document string) string {
	tokens := html.NewTokenizer(strings.NewReader(document))
	var b strings.Builder
	for {
		switch tokens.Next() {
		case html.ErrorToken:
			return strings.Join(strings.Fields(b.String()), " ")
		case html.TextToken:
			b.Write(tokens.Text())
		default:
			b.WriteByte(' ')
		}
	}
}

// If a task failed several times, the page shows its last message, and the host of the failure.
func TestPage_ShowsTheFailureThatCounts(t *testing.T) {
	t.Parallel()
	run := runs.Fail(runs.Run(2, object("shop"), time.Now()), "the last time")
	last := run.Tasks[len(run.Tasks)-1]
	before, other := last, last
	before.Message, other.Message, other.Host = "the first time", "on another host", "other"
	run.Tasks = append(run.Tasks[:len(run.Tasks)-1], before, last, other)
	is := get(t, runs.New(t, run).Serve(t), "run?id="+run.ID, nil).Body
	_, failure, _ := strings.Cut(is, `id="failure"`)
	failure, _, _ = strings.Cut(failure, "</section>")
	if !strings.Contains(failure, "the last time") {
		t.Errorf("the failure is\n%s", plain(failure))
	}
}

// Whatever a run says, a view has the same elements and attributes as for a harmless text.
func TestPage_TextStaysText(t *testing.T) {
	t.Parallel()
	now := time.Now()
	shape := func(words string) map[string]string {
		first, second := runs.HostileRun(1, words, now.Add(-time.Hour)), runs.HostileRun(2, words, now)
		server := runs.New(t, first, second).Serve(t)
		shapes := map[string]string{}
		for i, path := range views(first, second) {
			a := get(t, server, path, nil)
			if a.Code != http.StatusOK {
				t.Fatalf("%q in %s: %d", words, path, a.Code)
			}
			if at := strings.IndexFunc(a.Body, text.Unwanted); at >= 0 {
				t.Errorf("%q: view %d has the character %q", words, i, a.Body[at])
			}
			shapes[fmt.Sprint(i)] = elements(t, a.Body)
		}
		return shapes
	}
	want := shape("harmless")
	for _, words := range runs.Hostile() {
		must.Be(t, fmt.Sprintf("%q", words), want, shape(words))
	}
}

// elements returns the elements of a document with the names of their attributes, and the targets of links without their
// queries.
func elements(t *testing.T, document string) string {
	t.Helper()
	tokens := html.NewTokenizer(strings.NewReader(document))
	var b strings.Builder
	for {
		switch tokens.Next() {
		case html.ErrorToken:
			return b.String()
		case html.CommentToken:
			t.Errorf("a comment: %s", tokens.Raw())
		case html.StartTagToken, html.SelfClosingTagToken:
			token := tokens.Token()
			b.WriteString("<" + token.Data)
			for _, a := range token.Attr {
				b.WriteString(" " + a.Key)
				if a.Key == "href" {
					path, _, _ := strings.Cut(a.Val, "?")
					b.WriteString("=" + path)
				}
			}
			b.WriteString(">\n")
		}
	}
}

func TestPage_Guard(t *testing.T) {
	t.Parallel()
	server := runs.New(t).Serve(t)
	for name, tt := range map[string]struct {
		change func(*http.Request)
		code   int
	}{
		"an address bar":     {func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "none") }, 200},
		"the page itself":    {func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-origin") }, 200},
		"another site":       {func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }, 403},
		"another port":       {func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-site") }, 403},
		"a name of another":  {func(r *http.Request) { r.Host = "evil.example:80" }, 421},
		"another host":       {func(r *http.Request) { r.Host = "localhost" }, 421},
		"another secret":     {func(r *http.Request) { r.URL.Path = "/b-secret/" }, 404},
		"no secret":          {func(r *http.Request) { r.URL.Path = "/" }, 404},
		"a part of a secret": {func(r *http.Request) { r.URL.Path = strings.TrimSuffix(runs.Base, "/") }, 404},
		"a way around it":    {func(r *http.Request) { r.URL.Path = "/x/.." + runs.Base }, 404},
		"a form":             {func(r *http.Request) { r.Method = http.MethodPost }, 405},
	} {
		for _, path := range []string{"", "style.css", "page.js", "events?run=x"} {
			want := tt.code
			if strings.HasPrefix(path, "events") && want == 200 {
				continue // the stream does not end
			}
			a := get(t, server, path, tt.change)
			if a.Code != want && (want != 404 || path == "") {
				t.Errorf("%s asks for %q: %d, want %d", name, path, a.Code, want)
			}
			if want >= 400 && want != 405 && strings.Contains(a.Body, "<") {
				t.Errorf("%s gets %s", name, a.Body)
			}
			for header, value := range map[string]string{
				"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store", "Set-Cookie": "",
				"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
			} {
				must.Be(t, name+" "+path+" "+header, value, a.Header.Get(header))
			}
			policy := a.Header.Get("Content-Security-Policy")
			if !strings.HasPrefix(policy, "default-src 'none'; script-src 'self';") || strings.Contains(policy, "unsafe") || !strings.Contains(policy, "frame-ancestors 'none'") {
				t.Errorf("policy %q", policy)
			}
		}
	}
}

// Each view of many long runs stays small.
func TestPage_Size(t *testing.T) {
	t.Parallel()
	const most = 150_000
	all := runs.Many(400, 5)
	first, second := all[len(all)-2], all[len(all)-1]
	for _, r := range []*history.Run{&first, &second} {
		r.Object, r.ID = all[3].Object, "long-"+r.ID
		for i := range 500 {
			task := r.Tasks[i%4]
			task.Outcome, task.Message = []string{"ok", "failed"}[i%2], strings.Repeat("long ", 1000)
			task.Name = fmt.Sprintf("%s %d %s", r.ID, i, strings.Repeat("&", 200))
			r.Tasks = append(r.Tasks, task)
		}
		for i := range history.MaxWrites {
			r.Writes = append(r.Writes, history.Write{Resource: "deployments.apps", Name: fmt.Sprint(r.ID, i), Result: "changed", Fields: []string{strings.Repeat("spec.", 50)}})
		}
	}
	second.Finished = second.Finished.Add(time.Hour)
	server := runs.New(t, append(all, first, second)...).Serve(t)
	for _, path := range append(views(first, second)[:5], "run?id="+second.ID+"&from=490") {
		a := get(t, server, path, nil)
		if a.Code != http.StatusOK || len(a.Body) > most {
			t.Errorf("%s: %d, %d bytes, want at most %d", path, a.Code, len(a.Body), most)
		}
	}
}

// A report has no script and loads nothing. Its policy allows its style.
func TestReport_StandsAlone(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	must.Do(t, page.Report(&b, runs.Fail(runs.Run(1, object("shop"), time.Now()), "no answer"), time.Now()))
	said := b.String()
	if !strings.Contains(said, "no answer") || strings.Contains(plain(said), "Compare") {
		t.Errorf("the report says\n%s", plain(said))
	}
	if found := regexp.MustCompile(`<script|<link|<a |<form|src=|url\(`).FindString(said); found != "" {
		t.Errorf("the report has %s", found)
	}
	if !regexp.MustCompile(`<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'sha256-[A-Za-z0-9+/]{43}='; base-uri 'none'; form-action 'none'">`).MatchString(html.UnescapeString(said)) {
		t.Errorf("the report has no policy:\n%.700s", said)
	}
}

// A source asks for new runs only. It has each run once, the newest first.
func TestRemote_AsksForWhatIsNew(t *testing.T) {
	t.Parallel()
	all := runs.Many(700, 3)
	o := runs.New(t, all...)
	source := o.Source("")
	asks := 0
	ask := source.Ask
	source.Ask = func(ctx context.Context, path string, query url.Values) (*http.Response, error) {
		asks++
		return ask(ctx, path, query)
	}
	look := func(want, asked int) []history.Brief {
		t.Helper()
		is, _, err := source.Runs(t.Context())
		must.Do(t, err)
		seen := map[string]bool{}
		for i, b := range is {
			if seen[b.ID] || i > 0 && !b.Finished.IsZero() && b.Finished.After(is[i-1].Finished) && !is[i-1].Finished.IsZero() {
				t.Fatalf("run %d of %d is there twice, or not in its place: %+v", i, len(is), b)
			}
			seen[b.ID] = true
		}
		must.Be(t, "runs, and requests", []int{want, asked}, []int{len(is), asks})
		asks = 0
		return is
	}
	look(2100, 3)
	look(2100, 1)
	x := o.Recorder.Begin(history.Run{Brief: history.Brief{ID: "new", Object: object("a"), Started: time.Now()}})
	must.Be(t, "first", "new", look(2101, 1)[0].ID)
	late := runs.Run(5000, object("late"), time.Now().Add(-30*time.Second)) // ended before runs that are already known
	o.Store.Add(late)
	x.End(func(r *history.Run) { r.Finished, r.Result = time.Now(), "Succeeded" })
	look(2102, 1)
}
