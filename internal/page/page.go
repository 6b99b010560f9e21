// Package page shows the runs of an operator in a browser: HTML that the server renders,
// and one small script for what happens while it is looked at.
//
// It only reads, from a [Source] with the rights of its reader. Every text of a run is
// hostile: html/template escapes it by its place, and nothing that comes with the page may
// run, load or frame anything but the two files of this package.
package page

import (
	"bytes"
	"crypto/subtle"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/rolewright/rolewright/internal/text"
)

//go:embed templates assets
var files embed.FS

// Options are those of [New].
type Options struct {
	Source Source
	// Base is the path of the page, which begins and ends with a slash. Other paths are not
	// found. Where it is a secret, who does not know it sees nothing.
	Base string
	// Hosts are the hosts that a request may name, such as 127.0.0.1:8080.
	Hosts []string
	// Flags are what a command needs to read the same, for "copy as command".
	Flags string
}

type server struct {
	Options
	templates *template.Template
	now       func() time.Time
	streams   chan struct{} // a place for each stream of events
}

// maxStreams is how many tabs follow events at a time.
const maxStreams = 20

// New returns the handler of the page.
func New(o Options) http.Handler { return newServer(o).handler() }

func newServer(o Options) *server {
	s := &server{Options: o, now: time.Now, streams: make(chan struct{}, maxStreams)}
	s.templates = parse()
	return s
}

func parse() *template.Template {
	return template.Must(template.New("").Funcs(functions()).ParseFS(files, "templates/*.html"))
}

func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	view := func(path string, v func(*http.Request) (view, error)) {
		mux.HandleFunc("GET /"+path, func(w http.ResponseWriter, r *http.Request) { s.show(w, r, v) })
	}
	view("{$}", s.overview)
	view("object", s.object)
	view("run", s.run)
	view("compare", s.compare)
	view("queue", s.queue)
	view("trends", s.trends)
	mux.HandleFunc("GET /report", s.report)
	mux.HandleFunc("GET /events", s.events)
	for name, kind := range map[string]string{"style.css": "text/css; charset=utf-8", "page.js": "text/javascript; charset=utf-8", "icon.svg": "image/svg+xml"} {
		content, err := files.ReadFile("assets/" + name)
		mux.HandleFunc("GET /"+name, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			_, _ = w.Write(content) // a client that is gone needs no answer
		})
		if err != nil {
			panic(err) // it is embedded
		}
	}
	return s.guard(mux)
}

// policy lets the page use its own files, and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; " +
	"form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// guard refuses what no page of this server and no address bar has asked for.
func (s *server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		for name, value := range map[string]string{
			"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store",
			"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin", "X-Robots-Tag": "noindex",
		} {
			h.Set(name, value)
		}
		if !slices.Contains(s.Hosts, r.Host) {
			// A name of another site may have been made to lead here.
			http.Error(w, "This address leads to another host than it says.", http.StatusMisdirectedRequest)
			return
		}
		if from := r.Header.Get("Sec-Fetch-Site"); from != "" && from != "same-origin" && from != "none" {
			http.Error(w, "Another site has asked for this page. Open it by its address.", http.StatusForbidden)
			return
		}
		path := r.URL.Path
		if len(path) < len(s.Base) || subtle.ConstantTimeCompare([]byte(path[:len(s.Base)]), []byte(s.Base)) != 1 {
			http.NotFound(w, r)
			return
		}
		http.StripPrefix(strings.TrimSuffix(s.Base, "/"), next).ServeHTTP(w, r)
	})
}

// view is what a template shows.
type view struct {
	template string
	// Title is that of the document, and Base where links begin; empty in a report, which
	// has none.
	Title, Base string
	Now         time.Time
	// Refresh is true where a reader without a script has the page reloaded.
	Refresh bool
	// Command shows the same at a terminal.
	Command string
	// Style is the style sheet where it is in the document, with its hash for the policy.
	Style     template.CSS
	StyleHash string
	Data      any
}

// Link is the address of another view, with pairs of parameters.
func (v view) Link(path string, pairs ...string) string {
	q := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			q.Set(pairs[i], pairs[i+1])
		}
	}
	if len(q) == 0 {
		return v.Base + path
	}
	return v.Base + path + "?" + q.Encode()
}

// badRequest is the error of a request whose parameters are wrong.
type badRequest string

func (b badRequest) Error() string { return string(b) }

func (s *server) show(w http.ResponseWriter, r *http.Request, make func(*http.Request) (view, error)) {
	code := http.StatusOK
	v, err := make(r)
	if err != nil {
		var bad badRequest
		switch {
		case errors.Is(err, ErrNotFound):
			code = http.StatusNotFound
		case errors.As(err, &bad):
			code = http.StatusBadRequest
		default:
			code = http.StatusBadGateway
		}
		v = view{template: "error.html", Title: http.StatusText(code), Data: err.Error()}
	}
	v.Base, v.Now = s.Base, s.now()
	if v.Command != "" {
		v.Command = strings.TrimSuffix("rolewright "+v.Command+" "+s.Flags, " ")
	}
	var page bytes.Buffer
	if err := render(&page, s.templates, v); err != nil {
		http.Error(w, "The page cannot be made.", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	_, _ = page.WriteTo(w) // a client that is gone needs no answer
}

// render writes a view without control characters.
func render(w io.Writer, templates *template.Template, v view) error {
	var page bytes.Buffer
	if err := templates.ExecuteTemplate(&page, v.template, v); err != nil {
		return fmt.Errorf("make the page: %w", err)
	}
	_, err := w.Write(bytes.Map(func(r rune) rune {
		if text.Unwanted(r) {
			return -1
		}
		return r
	}, page.Bytes()))
	return err
}
