package page

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/rolewright/rolewright/internal/api"
	"github.com/rolewright/rolewright/internal/history"
)

// trendsData is what the page shows about many runs.
type trendsData struct {
	Filter filter
	Kinds  []string
	Days   int
	Runs   int
	Plot   bars
	// Causes are the causes with their numbers of runs, in the order of their colours.
	Causes []counted
	// From and To are the limits of the period.
	From, To time.Time
	Slowest  []slowTask
	Failures []counted
	// Looked is the number of runs whose tasks were considered for Slowest.
	Looked int
	// Meta says which replica the runs come from.
	Meta api.ListMeta
}

// counted is a name with its count. Part is the count in percent of the highest count.
type counted struct {
	Name, Class string
	Count, Part int
}

// slowTask is a task with the longest and the mean time that it took.
type slowTask struct {
	history.TaskName
	Times      int
	Mean, Most time.Duration
	Part       int

	total time.Duration
}

// Limits on what is read and shown.
const (
	buckets    = 28
	maxColours = 7 // without the colour of all other causes
	maxListed  = 10
	maxLooked  = 20
	maxDays    = 90
)

func (s *Server) trends(r *http.Request) (view, error) {
	d := trendsData{Filter: filterOf(r), Days: 7, To: s.now()}
	if text := r.URL.Query().Get("days"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > maxDays {
			return view{}, badRequest(fmt.Sprintf("days: give a number from 1 to %d", maxDays))
		}
		d.Days = n
	}
	d.From = d.To.AddDate(0, 0, -d.Days)
	all, meta, err := s.Source.Runs(r.Context())
	if err != nil {
		return view{}, err
	}
	d.Kinds, d.Meta = kindsOf(all), meta
	var runs []history.Brief
	for _, b := range all {
		if d.Filter.has(b.Object) && b.Started.After(d.From) {
			runs = append(runs, b)
		}
	}
	d.Runs = len(runs)
	d.Causes, d.Plot = causesOf(runs, d.From, d.To)
	d.Failures = failuresOf(runs)
	if d.Slowest, d.Looked, err = s.slowest(r.Context(), runs); err != nil {
		return view{}, err
	}
	return view{template: "trends.html", Title: "Trends", Data: d, Command: "get runs"}, nil
}

// count returns the names with their counts, the most frequent first.
func count(names map[string]int) (all []counted) {
	for name, n := range names {
		all = append(all, counted{Name: name, Count: n})
	}
	slices.SortFunc(all, func(a, b counted) int { return cmp.Or(b.Count-a.Count, cmp.Compare(a.Name, b.Name)) })
	for i := range all {
		all[i].Part = share(int64(all[i].Count), int64(all[0].Count), 100)
	}
	return all
}

// causesOf returns how many runs each cause has had, in all and as a plot over the time.
func causesOf(runs []history.Brief, from, to time.Time) ([]counted, bars) {
	names := map[string]int{}
	for _, b := range runs {
		names[b.Cause]++
	}
	causes := count(names)
	colour := map[string]int{}
	for i := range causes {
		n := min(i, maxColours)
		causes[i].Class = "c" + strconv.Itoa(n)
		colour[causes[i].Name] = n
	}
	var counts [buckets][maxColours + 1]int
	highest := 0
	for _, b := range runs {
		at := share(int64(b.Started.Sub(from)), int64(to.Sub(from)), buckets)
		bucket := &counts[min(max(at, 0), buckets-1)]
		bucket[colour[b.Cause]]++
		sum := 0
		for _, n := range bucket {
			sum += n
		}
		highest = max(highest, sum)
	}
	const width = 20
	plot := bars{Width: buckets * width, Height: plotHeight * 2}
	for i, bucket := range counts {
		y := plot.Height
		for c, n := range bucket {
			if height := share(int64(n), int64(highest), plot.Height); n > 0 {
				height = max(height, 1)
				y -= height
				plot.Bars = append(plot.Bars, bar{i * width, y, width - barGap, height, "c" + strconv.Itoa(c)})
			}
		}
	}
	return causes[:min(len(causes), maxListed)], plot
}

// failuresOf returns the tasks with which runs have failed, and the reasons of failures without a
// task, the most frequent first.
func failuresOf(runs []history.Brief) []counted {
	names := map[string]int{}
	for _, b := range runs {
		if b.Result == "Failed" {
			name := "no task: " + b.Reason
			if b.Task != nil {
				name = b.Task.Title()
			}
			names[name]++
		}
	}
	all := count(names)
	return all[:min(len(all), maxListed)]
}

// slowest returns the tasks that took longest in the newest runs, and the number of these runs.
func (s *Server) slowest(ctx context.Context, runs []history.Brief) (slow []slowTask, looked int, err error) {
	type key struct{ role, name, path string }
	tasks := map[key]*slowTask{}
	for _, b := range runs {
		if b.Finished.IsZero() {
			continue
		}
		if looked == maxLooked {
			break
		}
		run, _, err := s.Source.Run(ctx, b.ID)
		if errors.Is(err, ErrNotFound) {
			continue // it is too old by now
		}
		looked++
		if err != nil {
			return nil, 0, err
		}
		for _, t := range run.Tasks {
			if t.Started.IsZero() || t.Outcome == "skipped" {
				continue
			}
			at := key{t.Role, t.Name, t.Path}
			if tasks[at] == nil {
				tasks[at] = &slowTask{TaskName: t.TaskName}
			}
			took := max(t.Finished.Sub(t.Started), 0)
			tasks[at].Times++
			tasks[at].total += took
			tasks[at].Most = max(tasks[at].Most, took)
		}
	}
	for t := range maps.Values(tasks) {
		t.Mean = t.total / time.Duration(t.Times)
		slow = append(slow, *t)
	}
	slices.SortFunc(slow, func(a, b slowTask) int { return cmp.Or(cmp.Compare(b.Most, a.Most), cmp.Compare(a.Path, b.Path)) })
	slow = slow[:min(len(slow), maxListed)]
	for i := range slow {
		slow[i].Part = share(int64(slow[i].Most), int64(slow[0].Most), 100)
	}
	return slow, looked, nil
}
