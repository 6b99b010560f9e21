package page

import (
	"cmp"
	"html/template"
	"net/http"
	"slices"
	"strings"

	"github.com/rolewright/rolewright/internal/history"
	"github.com/rolewright/rolewright/internal/text"
)

// runData is what the page shows about a run.
type runData struct {
	history.Run
	Failed *failedTask
	Tasks  []taskRow
	// From and Next are as in the overview; Count is the number of all tasks.
	From, Next, Count int
	// Quiet is how many tasks on this page were ok or skipped.
	Quiet  int
	Wrote  []history.Write
	Silent int // writes that changed nothing
	More   int // writes that are not shown
	// Before is the ID of the object's previous run, and Worked that of the last one before
	// this that succeeded; empty if there is none.
	Worked, Before string
	// Cursor is the cursor of the next event of a run in progress.
	Cursor string
	Report bool
}

// Live reports whether the run is in progress.
func (d runData) Live() bool { return d.Finished.IsZero() && !d.Report }

// Written returns how many writes are recorded.
func (d runData) Written() int { return len(d.Writes) }

// By returns the title of the task that has made a write; empty if that is not known.
func (d runData) By(w history.Write) string {
	if w.Task < 0 || w.Task >= len(d.Run.Tasks) {
		return ""
	}
	return d.Run.Tasks[w.Task].Title()
}

// taskRow is a task with its index.
type taskRow struct {
	history.Task
	Number int
}

func quiet(t history.Task) bool { return t.Outcome == "ok" || t.Outcome == "skipped" }

// failedTask is the task with which a run failed.
type failedTask struct {
	history.Task
	Source *history.Source
}

func failedOf(r history.Run) *failedTask {
	for _, t := range slices.Backward(r.Tasks) { // backward, because a task may have failed before and been tried again
		bad := t.Outcome == "failed" || t.Outcome == "unreachable"
		if bad && (r.Task == nil || r.Result == "" || r.Task.Name == t.Name && r.Task.Path == t.Path && (r.Task.Host == "" || t.Host == r.Task.Host)) {
			return &failedTask{t, r.Source}
		}
	}
	if r.Result != "Failed" || r.Task == nil {
		return nil
	}
	return &failedTask{history.Task{TaskName: *r.Task, Outcome: "failed", Message: r.Message}, r.Source}
}

// Limits on one page of a run.
const (
	maxTaskBytes  = 80 << 10
	maxWriteBytes = 40 << 10
	maxTaskText   = 2 << 10
	maxLine       = 300
	maxFields     = 20
	// rowBytes is about how many bytes a row takes in addition to its texts.
	rowBytes = 250
)

// bytesOf returns how many bytes texts take on the page, each cut to most.
func bytesOf(most int, texts ...string) (size int) {
	for _, s := range texts {
		size += len(template.HTMLEscapeString(text.Cut(s, most)))
	}
	return size
}

// sizeOf returns about how many bytes a task takes on the page.
func sizeOf(t history.Task) int {
	size := rowBytes + bytesOf(maxLine, t.Title(), t.Path, t.Action, t.Host)
	if !quiet(t) {
		size += bytesOf(maxTaskText, t.Message)
	}
	return size
}

// pageOf returns the tasks from the index from on that fit on a page, or, if last is true, the
// last tasks. start is the index of the first of them, and next that of the next page; 0 if
// there is none.
func pageOf(tasks []history.Task, from int, last bool) (rows []taskRow, start, next int) {
	size := 0
	if last {
		for from = len(tasks); from > 0 && size+sizeOf(tasks[from-1]) <= maxTaskBytes; from-- {
			size += sizeOf(tasks[from-1])
		}
		size = 0
	}
	for n := from; n < len(tasks); n++ {
		if size += sizeOf(tasks[n]); size > maxTaskBytes && n > from {
			return rows, from, n
		}
		rows = append(rows, taskRow{tasks[n], n})
	}
	return rows, from, 0
}

func (s *Server) run(r *http.Request) (view, error) {
	id := r.URL.Query().Get("id")
	if strings.Trim(id, ".") == "" { // ".." would lead to another path of the API
		return view{}, badRequest("give the ID of a run")
	}
	run, cursor, err := s.Source.Run(r.Context(), id)
	if err != nil {
		return view{}, err
	}
	runs, _, err := s.Source.Runs(r.Context())
	if err != nil {
		return view{}, err
	}
	from, err := fromOf(r, len(run.Tasks))
	if err != nil {
		return view{}, err
	}
	d := dataOf(run)
	d.Cursor = cursor
	d.Tasks, d.From, d.Next = pageOf(run.Tasks, from, d.Live())
	d.count()
	same := runsOf(runs, run.Object)
	for _, b := range same[find(same, run.ID)+1:] {
		if b.Finished.IsZero() || !b.Started.Before(run.Started) {
			continue
		}
		d.Before = cmp.Or(d.Before, b.ID)
		if b.Result == "Succeeded" {
			d.Worked = b.ID
			break
		}
	}
	return view{template: "run.html", Title: "Run of " + run.Kind + " " + run.Name, Refresh: d.Live(), Data: d, Command: "describe run " + text.ShellWord(run.ID)}, nil
}

// dataOf returns what the page shows about a run, without its tasks.
func dataOf(run history.Run) runData {
	d := runData{Run: run, Failed: failedOf(run), Count: len(run.Tasks)}
	size := 0
	for _, w := range run.Writes {
		if w.Result == "unchanged" {
			d.Silent++
			continue
		}
		w.Fields = w.Fields[:min(len(w.Fields), maxFields)]
		size += rowBytes + bytesOf(maxLine, w.Fields...) + bytesOf(maxLine, w.Target(), d.By(w))
		if size > maxWriteBytes {
			d.More++
			continue
		}
		d.Wrote = append(d.Wrote, w)
	}
	d.More += run.WritesLeftOut
	return d
}

func (d *runData) count() {
	for _, t := range d.Tasks {
		if quiet(t.Task) {
			d.Quiet++
		}
	}
}
