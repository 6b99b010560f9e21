// Package page shows the runs of an operator in a browser: HTML that the server renders,
// and one small script for what happens while a page is open.
//
// It reads from a [Source] with the rights of its reader, and changes nothing except by
// [Options.Act]. Every text of a run is hostile: html/template escapes it for its context,
// and the policy of the page lets it load nothing but the files of this package.
package page

import (
	"bytes"
	"cmp"
	"context"
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

	"github.com/rolewright/rolewright/internal/history"
	"github.com/rolewright/rolewright/internal/text"
)

//go:embed templates assets
var files embed.FS

// Options are the options of [New].
type Options struct {
	Source Source
	// Base is the path of the page, which begins and ends with a slash. Other paths are not
	// found. If it contains a secret, clients that do not know it see nothing.
	Base string
	// Hosts are the hosts that a request may name, such as 127.0.0.1:8080.
	Hosts []string
	// Links is true if links on other sites may lead to the page, such as the redirect after
	// a login elsewhere.
	Links bool
	// Flags are the flags with which a command reads the same, for "copy as command".
	Flags string
	// Act does to an object what a reader has asked for, with the rights of the reader, and
	// reports whether that has changed anything. If it is nil, there are no buttons.
	Act func(ctx context.Context, o history.Object, asked Asked) (changed bool, err error)
}

// Server is the handler of a page.
type Server struct {
	Options
	http.Handler
	templates *template.Template
	now       func() time.Time
	streams   chan struct{} // has a value for each stream of events
}

// maxStreams is how many tabs may follow events at a time.
const maxStreams = 20

// New returns the page.
func New(o Options) *Server { return newServer(o, parse()) }

// With is like New, but faster, because it reuses the templates.
func (s *Server) With(o Options) *Server { return newServer(o, s.templates) }

func newServer(o Options, templates *template.Template) *Server {
	s := &Server{Options: o, templates: templates, now: time.Now, streams: make(chan struct{}, maxStreams)}
	s.Handler = s.handler()
	return s
}

func parse() *template.Template {
	return template.Must(template.New("").Funcs(functions()).ParseFS(files, "templates/*.html"))
}

func (s *Server) handler() http.Handler {
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
	if s.Act != nil {
		mux.HandleFunc("POST /act", s.act)
	}
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
	return Guard(s.Options, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := r.URL.Path
		if len(path) < len(s.Base) || subtle.ConstantTimeCompare([]byte(path[:len(s.Base)]), []byte(s.Base)) != 1 {
			http.NotFound(w, r)
			return
		}
		http.StripPrefix(strings.TrimSuffix(s.Base, "/"), mux).ServeHTTP(w, r)
	}))
}

// policy is the Content-Security-Policy, which lets the page use only its own files.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; " +
	"form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// Guard refuses requests that come neither from a page of this server nor from an address bar.
// Of the options, it uses Hosts, Links, and whether there is an Act.
func Guard(o Options, next http.Handler) http.Handler {
	referrer := "no-referrer"
	if o.Act != nil {
		referrer = "same-origin" // else a form would have no Origin
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		for name, value := range map[string]string{
			"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": referrer, "Cache-Control": "no-store",
			"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin", "X-Robots-Tag": "noindex",
		} {
			h.Set(name, value)
		}
		if !slices.Contains(o.Hosts, r.Host) {
			// The name of another site may have been pointed at this server (DNS rebinding).
			http.Error(w, "This server does not serve the host name of this address.", http.StatusMisdirectedRequest)
			return
		}
		reads := r.Method == http.MethodGet || r.Method == http.MethodHead
		link := o.Links && reads && r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
		if from := r.Header.Get("Sec-Fetch-Site"); from != "" && from != "same-origin" && from != "none" && !link {
			http.Error(w, "Another site has requested this page. Open its address directly.", http.StatusForbidden)
			return
		}
		if o.Act != nil && !reads && !sameOrigin(r) {
			http.Error(w, "This form was not sent from a page of this server. Open the address of the page directly, and use its buttons.", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// view is what a template shows.
type view struct {
	template string
	// Title is the title of the document. Base begins the addresses of links; empty in a
	// report, which has no links.
	Title, Base string
	Now         time.Time
	// Refresh is true if a browser without scripts has to reload the page.
	Refresh bool
	// Command is the command that shows the same in a terminal.
	Command string
	// Style is the style sheet if it is part of the document, StyleHash its hash for the policy.
	Style     template.CSS
	StyleHash string
	Data      any
	// code is the HTTP status of the answer; 0 for success.
	code int
}

// Link returns the address of another view; pairs are names and values of parameters.
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

func (s *Server) show(w http.ResponseWriter, r *http.Request, make func(*http.Request) (view, error)) {
	v, err := make(r)
	code := cmp.Or(v.code, http.StatusOK)
	if err != nil {
		var bad badRequest
		switch {
		case errors.Is(err, ErrNotFound):
			code = http.StatusNotFound
		case errors.Is(err, ErrForbidden):
			code = http.StatusForbidden
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

// render writes a view, without unwanted characters such as control characters.
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
