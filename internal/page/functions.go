package page

import (
	"fmt"
	"html/template"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/rolewright/rolewright/internal/api"
	"github.com/rolewright/rolewright/internal/history"
	"github.com/rolewright/rolewright/internal/text"
)

// stateName returns the word for a state of objects.
func stateName(state int) string {
	return [...]string{"failing", "running", "interrupted", "fine"}[state]
}

// sign is a word with a shape and a class for its colour.
type sign struct{ Word, Shape, Class string }

// signOf returns the sign for a result, an outcome or a state. The class is one of a few words.
func signOf(word string) sign {
	switch word {
	case "Failed", "failed", "unreachable", "refused", "failing":
		return sign{word, "×", "bad"}
	case "changed", "created", "deleted":
		return sign{word, "±", "new"}
	case "", "running":
		return sign{"running", "…", "runs"}
	case "Succeeded", "ok", "fine":
		return sign{word, "✓", "good"}
	}
	return sign{word, "–", "cut"}
}

func seconds(d time.Duration) string {
	switch {
	case d < 10*time.Second:
		return fmt.Sprintf("%.2f s", d.Seconds())
	case d < 10*time.Minute:
		return fmt.Sprintf("%.0f s", d.Seconds())
	}
	return duration.HumanDuration(d)
}

// stamp is a time in the forms for a <time> element.
type stamp struct{ Machine, Exact, Ago string }

func stampOf(now, t time.Time) *stamp {
	if t.IsZero() {
		return nil
	}
	s := stamp{t.UTC().Format(time.RFC3339), t.UTC().Format(time.DateTime) + " UTC", duration.HumanDuration(now.Sub(t)) + " ago"}
	if t.After(now) {
		s.Ago = "in " + duration.HumanDuration(t.Sub(now))
	}
	return &s
}

// whose says which replica the shown queue or history comes from.
type whose struct {
	What   string
	Leads  bool
	Shards *api.Shards
}

func functions() template.FuncMap {
	return template.FuncMap{
		"state": stateName, "sign": signOf, "seconds": seconds, "stamp": stampOf,
		"kind": kindOf, "quiet": quiet,
		"whose": func(what string, leads bool, shards *api.Shards) whose { return whose{what, leads, shards} },
		"cut":   func(limit int, s string) string { return text.Clip(s, limit) },
		"id":    func(id string) string { return text.Cut(id, 8) },
		"add":   func(a, b int) int { return a + b },
		"lasts": func(b history.Brief, now time.Time) string { return seconds(max(endOf(b, now).Sub(b.Started), 0)) },
		"lasted": func(t history.Task) string {
			if t.Started.IsZero() {
				return ""
			}
			return seconds(max(t.Finished.Sub(t.Started), 0))
		},
		"mib": func(bytes int64) int64 { return bytes >> 20 },
		"limit": func(name string) int {
			return map[string]int{"message": maxMessage, "task": maxTaskText, "line": maxLine}[name]
		},
	}
}
