package page

import (
	"time"

	"github.com/rolewright/rolewright/internal/history"
)

// bars are the bars of a plot. The server draws them: only their numbers come from runs.
type bars struct {
	Width, Height int
	Bars          []bar
	// Max is the highest value.
	Max time.Duration
}

// bar is a rectangle, with the class that gives it its colour.
type bar struct {
	X, Y, Width, Height int
	Class               string
}

// Sizes of plots, in units of the SVG.
const (
	barWidth   = 10
	barGap     = 2
	plotHeight = 80
	minHeight  = 3
)

// barsOf returns a bar for each run, the newest at the right. The height is the time that the run took.
func barsOf(runs []history.Brief, now time.Time) bars {
	b := bars{Width: shownRuns * (barWidth + barGap), Height: plotHeight}
	took := func(r history.Brief) time.Duration { return max(endOf(r, now).Sub(r.Started), 0) }
	for _, r := range runs {
		b.Max = max(b.Max, took(r))
	}
	for i, r := range runs {
		height := minHeight + share(int64(took(r)), int64(b.Max), plotHeight-minHeight)
		b.Bars = append(b.Bars, bar{(shownRuns - 1 - i) * (barWidth + barGap), plotHeight - height, barWidth, height, classOf(r)})
	}
	return b
}

// share returns the part of length that n is of all.
func share(n, all int64, length int) int {
	if all <= 0 {
		return 0
	}
	return int(float64(n) / float64(all) * float64(length))
}

// classOf returns the class for the result of a run. It is one of a few words, whatever the result is.
func classOf(r history.Brief) string {
	switch r.Result {
	case "Succeeded":
		return "good"
	case "Failed":
		return "bad"
	case "":
		return "runs"
	}
	return "cut"
}
