package page_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rolewright/rolewright/internal/history"
	"github.com/rolewright/rolewright/internal/page"
	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/runs"
)

func addressOf(o history.Object) string {
	return url.Values{"group": {o.Group}, "kind": {o.Kind}, "namespace": {o.Namespace}, "name": {o.Name}}.Encode()
}

// post sends a form as the page does, with changes to the request.
func post(t *testing.T, server *httptest.Server, path, body string, change func(*http.Request)) answer {
	t.Helper()
	return get(t, server, path, func(r *http.Request) {
		r.Method, r.Body = http.MethodPost, io.NopCloser(strings.NewReader(body))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Sec-Fetch-Site", "same-origin")
		if change != nil {
			change(r)
		}
	})
}

func TestPage_Acts(t *testing.T) {
	t.Parallel()
	run := runs.Run(1, object("shop"), time.Now())
	var asked []string
	changed, refused := true, error(nil)
	o := runs.New(t, run)
	server := runs.ServeActing(t, o.Source(""), func(_ context.Context, o history.Object, by page.Asked) (bool, error) {
		asked = append(asked, by.Do+by.UID+by.Run+" "+o.Group+"/"+o.Version+"/"+o.Kind+" "+o.Namespace+"/"+o.Name)
		return changed, refused
	})
	server.Client().CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	at := "act?" + addressOf(run.Object)
	shown := plain(get(t, server, "object?"+addressOf(run.Object), nil).Body)
	if !strings.Contains(shown, "Reconcile now Suspend for 1 hour Suspend until resumed Resume State") {
		t.Errorf("without a run in progress it has other buttons:\n%s", shown)
	}
	o.Recorder.Begin(history.Run{Brief: history.Brief{ID: "now", Object: run.Object, Started: time.Now()}})
	shown = get(t, server, "object?"+addressOf(run.Object), nil).Body
	if !strings.Contains(plain(shown), "Resume Cancel the run State") || !strings.Contains(shown, `<input type="hidden" name="run" value="now">`) {
		t.Errorf("with a run in progress it has other buttons:\n%s", shown)
	}

	for _, do := range []string{"reconcile", "suspend-1h", "suspend", "resume", "cancel"} {
		a := post(t, server, at, "do="+do+"&uid=-u&run=-r", nil)
		must.Be(t, do, []string{"303", runs.Base + "object?did=" + do + "&" + addressOf(run.Object), do + "-u-r g/v1/Web shop/shop"}, append([]string{fmt.Sprint(a.Code), a.Header.Get("Location")}, asked...))
		asked = nil
	}
	a := post(t, server, at, "do=cancel&run="+run.ID, nil)
	must.Be(t, "code and calls for a run that has ended before the one in progress", "409 []", fmt.Sprint(a.Code, " ", asked))
	changed = false
	a = post(t, server, at, "do=resume", nil)
	shown = plain(get(t, server, strings.TrimPrefix(a.Header.Get("Location"), runs.Base), nil).Body)
	if !strings.Contains(shown, "The object was not suspended.") {
		t.Errorf("what came of nothing is not said:\n%s", shown)
	}
	if shown := get(t, server, "object?did=you+have+won&idle=x&"+addressOf(run.Object), nil).Body; strings.Contains(shown, "you have won") || strings.Contains(shown, "class=\"message\" role") {
		t.Error("the page says what its address says")
	}

	for want, err := range map[int]error{
		http.StatusForbidden:  fmt.Errorf("annotate: %w", apierrors.NewForbidden(schema.GroupResource{Resource: "webs"}, runs.Hostile()[0], errors.New("no rights"))),
		http.StatusConflict:   fmt.Errorf("no rights any more: %w", page.ErrChanged),
		http.StatusBadGateway: errors.New("no rights, no server"),
	} {
		refused = err
		a := post(t, server, at, "do=cancel", nil)
		if a.Code != want || !strings.Contains(a.Body, "no rights") || strings.Contains(a.Body, "<script>") || strings.Contains(a.Body, "http-equiv=\"refresh\"") {
			t.Errorf("%v: %d, want %d\n%s", err, a.Code, want, a.Body)
		}
	}
}

func TestPage_GuardOfActions(t *testing.T) {
	t.Parallel()
	run := runs.Run(1, object("shop"), time.Now())
	o := runs.New(t, run)
	asked := 0
	server := runs.ServeActing(t, o.Source(""), func(context.Context, history.Object, page.Asked) (bool, error) {
		asked++
		return true, nil
	})
	host := strings.TrimPrefix(server.URL, "http://")
	at, do := "act?"+addressOf(run.Object), "do=reconcile"
	header := func(pairs ...string) func(*http.Request) {
		return func(r *http.Request) {
			r.Header.Del("Sec-Fetch-Site")
			for i := 0; i < len(pairs); i += 2 {
				r.Header.Set(pairs[i], pairs[i+1])
			}
		}
	}
	server.Client().CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	for name, tt := range map[string]struct {
		path, body string
		change     func(*http.Request)
		code       int
	}{
		"a button":                       {at, do, nil, 303},
		"a browser without fetch":        {at, do, header("Origin", "http://"+host), 303},
		"behind a proxy with TLS":        {at, do, header("Origin", "https://"+host), 303},
		"behind one that says so":        {at, do, header("Origin", "https://"+host, "X-Forwarded-Proto", "https"), 303},
		"without TLS to one with it":     {at, do, header("Origin", "http://"+host, "X-Forwarded-Proto", "https"), 403},
		"nothing says from where":        {at, do, header(), 403},
		"an address bar":                 {at, do, header("Sec-Fetch-Site", "none"), 403},
		"another port":                   {at, do, header("Sec-Fetch-Site", "same-site"), 403},
		"another site":                   {at, do, header("Sec-Fetch-Site", "cross-site", "Origin", "http://"+host), 403},
		"a link of another site":         {at, do, header("Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"), 403},
		"another origin":                 {at, do, header("Origin", "http://evil.example"), 403},
		"an origin that begins so":       {at, do, header("Origin", "http://"+host+".evil.example"), 403},
		"an origin with the host inside": {at, do, header("Origin", "http://evil.example/"+host), 403},
		"no origin":                      {at, do, header("Origin", "null"), 403},
		"a file":                         {at, do, header("Origin", "file://"+host), 403},
		"another method":                 {at, do, func(r *http.Request) { r.Method = http.MethodPut; r.Header.Del("Sec-Fetch-Site") }, 403},
		"a link":                         {at + "&" + do, "", func(r *http.Request) { r.Method = http.MethodGet }, 405},
		"another host":                   {at, do, func(r *http.Request) { r.Host = "evil.example" }, 421},
		"another secret":                 {at, do, func(r *http.Request) { r.URL.Path = "/b-secret/act" }, 404},
		"an action in the address":       {at + "&" + do, "", nil, 400},
		"no action":                      {at, "do=delete", nil, 400},
		"a long form":                    {at, do + "&x=" + strings.Repeat("x", 2000), nil, 400},
		"JSON":                           {at, `{"do": "reconcile"}`, func(r *http.Request) { r.Header.Set("Content-Type", "application/json") }, 400},
		"an object without a name":       {"act?kind=Web", do, nil, 400},
		"an object that is not watched":  {"act?kind=Secret&namespace=shop&name=shop", do, nil, 404},
		"an object of another name":      {strings.Replace(at, "name=shop", "name=..", 1), do, nil, 404},
	} {
		asked = 0
		a := post(t, server, tt.path, tt.body, tt.change)
		if done := tt.code == 303; a.Code != tt.code || done != (asked == 1) || !done && asked > 0 {
			t.Errorf("%s: %d, and %d actions, want %d\n%s", name, a.Code, asked, tt.code, a.Body)
		}
		must.Be(t, name+": Referrer-Policy", "same-origin", a.Header.Get("Referrer-Policy"))
	}

	off := o.Serve(t)
	if a := post(t, off, at, do, nil); a.Code != http.StatusNotFound {
		t.Errorf("without actions: %d", a.Code)
	}
	if a := get(t, off, "object?"+addressOf(run.Object), nil); strings.Contains(a.Body, "<form") || strings.Contains(a.Body, "<button") {
		t.Errorf("without actions there are buttons:\n%s", a.Body)
	}
}
