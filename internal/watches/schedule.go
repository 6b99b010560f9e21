package watches

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rolewright/rolewright/internal/calendar"
)

// Schedule says when runs start that no change of an object asks for. The zero value restricts and starts nothing.
type Schedule struct {
	// Cron fires when each object is run; nil for never.
	Cron *calendar.Cron
	// Zone is the time zone of Cron and Windows; nil for UTC.
	Zone *time.Location
	// Jitter is how long after Cron the last objects run.
	Jitter time.Duration
	// Windows are the times in which runs may start that no change of an object asks for; empty for always.
	Windows []calendar.Window
}

// Location returns the time zone.
func (s Schedule) Location() *time.Location {
	if s.Zone == nil {
		return time.UTC
	}
	return s.Zone
}

// maxWindows and maxAPIs bound lists that are searched for each object, or requested
// every few seconds.
const maxWindows, maxAPIs = 32, 32

func scheduleFields() []field[Schedule] {
	return []field[Schedule]{
		{Field{"cron", typeString, "", false,
			`When each object runs: minute, hour, day of the month, month and day of the week, such as "0 3 * * *". --reconcile-period does not apply then.`},
			expression(func(s *Schedule) **calendar.Cron { return &s.Cron })},
		{Field{"timeZone", typeString, "UTC", false, "The time zone of cron and windows, such as Europe/Berlin."},
			setTimeZone},
		{Field{"jitter", typeDuration, "0s", false,
			"The time after cron over which the runs of the objects are spread. Each object has its own delay, which is always the same."},
			limit(func(s *Schedule) *time.Duration { return &s.Jitter })},
		{Field{"windows", typeList, "[]", false,
			"Maintenance windows: runs with the causes schedule, period, content, environment and restart start only within one. If missing, " +
				"they start at any time."},
			setWindows},
	}
}

func windowFields() []field[calendar.Window] {
	return []field[calendar.Window]{
		{Field{"start", typeString, "", true, `When the window opens, as a cron expression, such as "0 22 * * 1-5".`},
			expression(func(w *calendar.Window) **calendar.Cron { return &w.Start })},
		{Field{"duration", typeDuration, "", true, "How long the window is open; at least 1m."},
			func(c *decoding, w *calendar.Window, a at) {
				switch d, ok := duration(c, a); {
				case !ok:
				case d < time.Minute:
					c.error(a, fmt.Sprintf("a window of %s is too short", d), `write "1m" or more`)
				default:
					w.Duration = d
				}
			}},
	}
}

// schedule reads a schedule, and checks its keys in combination.
func (c *decoding) schedule(a at) Schedule {
	var s Schedule
	keys := object(c, a, scheduleFields(), &s)
	_, fires := keys["cron"]
	_, opens := keys["windows"]
	if keys != nil && !fires && !opens {
		c.warn(a, "a schedule without cron and windows has no effect", `add "cron:" or "windows:"`)
	}
	if where, said := keys["jitter"]; said && !fires {
		c.warn(where, "jitter has no effect without cron", `add "cron:", or remove it`)
	}
	return s
}

// expression reads a cron expression that fires at some time.
func expression[T any](of func(*T) **calendar.Cron) func(*decoding, *T, at) {
	return func(c *decoding, into *T, a at) {
		text, ok := c.string(a)
		if !ok {
			return
		}
		cron, err := calendar.Parse(text)
		if err != nil {
			c.error(a, fmt.Sprintf("%q is not a cron expression: %s", excerpt(text), excerpt(err.Error())),
				`write minute, hour, day of the month, month and day of the week, such as "0 3 * * *"`)
			return
		}
		*of(into) = cron
	}
}

func setTimeZone(c *decoding, s *Schedule, a at) {
	name, ok := c.string(a)
	if !ok {
		return
	}
	zone, err := calendar.Zone(name)
	if err != nil {
		c.error(a, excerpt(err.Error()), "write a name such as Europe/Berlin, or UTC")
		return
	}
	s.Zone = zone
}

func setWindows(c *decoding, s *Schedule, a at) {
	c.elements(a, func(element at) {
		var w calendar.Window
		keys := object(c, element, windowFields(), &w)
		if keys == nil {
			return
		}
		for _, key := range []string{"start", "duration"} {
			if _, said := keys[key]; !said {
				c.error(element, "a window must have "+key, `write when it opens and for how long: {start: "0 22 * * *", duration: 4h}`)
			}
		}
		switch {
		case w.Start == nil || w.Duration == 0: // which was reported
		case len(s.Windows) == maxWindows:
			c.error(element, fmt.Sprintf("there are more than %d windows", maxWindows), "merge some: a cron expression may list hours and days")
		default:
			s.Windows = append(s.Windows, w)
		}
	})
}

// EnabledIf says what has to be installed for a watch to be served.
type EnabledIf struct {
	// APIs are kinds that the API server must serve.
	APIs []schema.GroupVersionKind
}

func enabledIfFields() []field[EnabledIf] {
	return []field[EnabledIf]{
		{Field{"apis", typeList, "[]", false,
			"Kinds that the API server must serve, as group/version/Kind, such as monitoring.coreos.com/v1/ServiceMonitor, or v1/Secret for the core group."},
			setAPIs},
	}
}

var (
	versionForm = regexp.MustCompile(`^v[0-9][a-z0-9]*$`)
	kindForm    = regexp.MustCompile(`^[A-Z][A-Za-z0-9]*$`)
)

func setAPIs(c *decoding, e *EnabledIf, a at) {
	c.elements(a, func(element at) {
		text, ok := c.string(element)
		if !ok {
			return
		}
		parts := strings.Split(text, "/")
		if len(parts) == 2 {
			parts = append([]string{""}, parts...)
		}
		switch {
		case len(parts) != 3 || !versionForm.MatchString(parts[1]) || !kindForm.MatchString(parts[2]):
			c.error(element, fmt.Sprintf("%q is not an API", excerpt(text)),
				"write group/version/Kind, such as monitoring.coreos.com/v1/ServiceMonitor, or v1/Secret for the core group")
		case len(e.APIs) == maxAPIs:
			c.error(element, fmt.Sprintf("there are more than %d APIs", maxAPIs), "name one kind of each group")
		default:
			e.APIs = append(e.APIs, schema.GroupVersionKind{Group: parts[0], Version: parts[1], Kind: parts[2]})
		}
	})
}
