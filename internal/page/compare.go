package page

import (
	"net/http"

	"github.com/rolewright/rolewright/internal/history"
	"github.com/rolewright/rolewright/internal/text"
)

// compareData is what the page shows about two runs.
type compareData struct {
	A, B history.Run
	// Same is true if both runs are for the same object.
	Same                   bool
	Inputs, Tasks, Wrote   []history.Difference
	MoreTasks, MoreWritten int
}

// maxDifferences is how many bytes the differences of each kind may take.
const maxDifferences = 45 << 10

func (s *Server) compare(r *http.Request) (view, error) {
	q := r.URL.Query()
	a, _, err := s.Source.Run(r.Context(), q.Get("a"))
	if err != nil {
		return view{}, err
	}
	b, _, err := s.Source.Run(r.Context(), q.Get("b"))
	if err != nil {
		return view{}, err
	}
	diff := history.Compare(a, b)
	d := compareData{A: a, B: b, Same: a.Object == b.Object, Inputs: diff.Inputs}
	d.Tasks, d.MoreTasks = cut(diff.Tasks)
	d.Wrote, d.MoreWritten = cut(diff.Writes)
	return view{template: "compare.html", Title: "Two runs of " + a.Kind + " " + a.Name, Data: d, Command: "diff " + text.ShellWord(a.ID) + " " + text.ShellWord(b.ID)}, nil
}

// cut returns the first differences, and how many more there are.
func cut(all []history.Difference) ([]history.Difference, int) {
	size := 0
	for i, d := range all {
		if size += rowBytes/2 + bytesOf(maxLine, d.What, d.A, d.B); size > maxDifferences {
			return all[:i], len(all) - i
		}
	}
	return all, 0
}
