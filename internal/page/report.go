package page

import (
	"crypto/sha256"
	"encoding/base64"
	"html/template"
	"io"
	"net/http"
	"time"

	"github.com/rolewright/rolewright/internal/history"
)

// Report writes a run as one HTML document, which has no script and loads nothing.
func Report(w io.Writer, run history.Run, now time.Time) error {
	style, err := files.ReadFile("assets/style.css")
	if err != nil {
		return err
	}
	sum := sha256.Sum256(style)
	d := dataOf(run)
	d.Report = true
	for n, t := range run.Tasks {
		d.Tasks = append(d.Tasks, taskRow{t, n})
	}
	d.count()
	return render(w, parse(), view{
		template: "run.html", Title: "Run of " + run.Kind + " " + run.Name, Now: now, Data: d,
		Style: template.CSS(style), StyleHash: "sha256-" + base64.StdEncoding.EncodeToString(sum[:]),
	})
}

// report sends the report of a run as a file.
func (s *Server) report(w http.ResponseWriter, r *http.Request) {
	run, _, err := s.Source.Run(r.Context(), r.URL.Query().Get("id"))
	if err != nil {
		s.show(w, r, func(*http.Request) (view, error) { return view{}, err })
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Disposition", `attachment; filename="run.html"`)
	_ = Report(w, run, s.now()) // a client that is gone needs no answer
}
