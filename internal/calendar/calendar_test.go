package calendar

import (
	"strings"
	"testing"
	"time"

	"github.com/rolewright/rolewright/test/must"
)

// Around changes of the clocks, a daily entry fires once a day, whatever hour the clock skips or repeats.
func TestCron_Next(t *testing.T) {
	for name, tc := range map[string]struct {
		text, zone, after string
		want              string // the times that follow
	}{
		"each day":                       {"0 3 * * *", "UTC", "2026-05-06T03:00:00Z", "2026-05-07T03:00:00Z"},
		"a moment before":                {"0 3 * * *", "UTC", "2026-05-06T02:59:59.5Z", "2026-05-06T03:00:00Z 2026-05-07T03:00:00Z"},
		"by the zone's clock":            {"0 3 * * *", "Europe/Berlin", "2026-05-06T00:30:00Z", "2026-05-06T03:00:00+02:00"},
		"by the zone's day":              {"0 1 * * 1", "Asia/Tokyo", "2026-05-03T00:00:00Z", "2026-05-04T01:00:00+09:00"},
		"either day":                     {"0 0 13 * 5", "UTC", "2026-05-01T12:00:00Z", "2026-05-08T00:00:00Z 2026-05-13T00:00:00Z"},
		"a leap day":                     {"0 0 29 2 *", "Europe/Berlin", "2096-03-01T00:00:00Z", "2104-02-29T00:00:00+01:00"},
		"an hour that is skipped":        {"30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", "2026-03-29T03:00:00+02:00 2026-03-30T02:30:00+02:00"},
		"hours, one of them skipped":     {"30 1-2 * * *", "Europe/Berlin", "2026-03-29T00:00:00Z", "2026-03-29T01:30:00+01:00 2026-03-29T03:00:00+02:00 2026-03-30T01:30:00+02:00"},
		"the hour after the skipped one": {"0 2,3 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", "2026-03-29T03:00:00+02:00 2026-03-30T02:00:00+02:00"},
		"an hour that comes twice":       {"30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", "2026-10-25T02:30:00+02:00 2026-10-26T02:30:00+01:00"},
		"asked in the second one":        {"30 2 * * *", "Europe/Berlin", "2026-10-25T01:10:00Z", "2026-10-26T02:30:00+01:00"},
		"each hour, one of them skipped": {"30 * * * *", "Europe/Berlin", "2026-03-29T00:00:00Z", "2026-03-29T01:30:00+01:00 2026-03-29T03:30:00+02:00"},
		"each hour, one of them twice":   {"30 * * * *", "Europe/Berlin", "2026-10-25T00:00:00Z", "2026-10-25T02:30:00+02:00 2026-10-25T02:30:00+01:00 2026-10-25T03:30:00+01:00"},
		"midnight that is skipped":       {"0 0 4 11 *", "America/Sao_Paulo", "2018-11-03T12:00:00Z", "2018-11-04T01:00:00-02:00 2019-11-04T00:00:00-03:00"},
		"hours of a day without one":     {"0 * 4 11 *", "America/Sao_Paulo", "2018-11-03T12:00:00Z", "2018-11-04T01:00:00-02:00 2018-11-04T02:00:00-02:00"},
		"a day that ends twice":          {"30 23 * * *", "America/Sao_Paulo", "2018-02-17T12:00:00Z", "2018-02-17T23:30:00-02:00 2018-02-18T23:30:00-03:00"},
		"half an hour that is skipped":   {"15 2 * * *", "Australia/Lord_Howe", "2026-10-03T12:00:00Z", "2026-10-04T02:30:00+11:00 2026-10-05T02:15:00+11:00"},
		"half an hour that comes twice":  {"45 1 * * *", "Australia/Lord_Howe", "2026-04-04T12:00:00Z", "2026-04-05T01:45:00+11:00 2026-04-06T01:45:00+10:30"},
		"a day that is skipped":          {"0 12 * * *", "Pacific/Apia", "2011-12-29T23:00:00Z", "2011-12-31T00:00:00+14:00 2011-12-31T12:00:00+14:00"},
	} {
		c, loc := must.Get(Parse(tc.text))(t), must.Get(Zone(tc.zone))(t)
		at := must.Get(time.Parse(time.RFC3339Nano, tc.after))(t)
		var got []string
		for range strings.Fields(tc.want) {
			at = c.Next(at, loc)
			got = append(got, at.In(loc).Format(time.RFC3339))
		}
		must.Be(t, name, tc.want, strings.Join(got, " "))
	}
}

func TestParse_Refuses(t *testing.T) {
	for text, want := range map[string]string{
		"0 0 30 2 *":              "never fires",
		"0 0 31 2,4,6 *":          "never fires",
		"TZ=Asia/Tokyo 0 3 * * *": "cannot contain a time zone",
		"@daily":                  "descriptors",
		"0 3 * *":                 "expected exactly 5 fields, found 4",
		"0 0 3 * * *":             "expected exactly 5 fields, found 6",
		"60 * * * *":              "above maximum",
		"* * * * L":               "failed to parse",
		"":                        "empty",
	} {
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	for _, name := range []string{"", "Local", "Europe/Berlim", "../etc/passwd", "/etc/localtime"} {
		if loc, err := Zone(name); err == nil {
			t.Errorf("%q is the zone %s", name, loc)
		}
	}
}

func TestOpens(t *testing.T) {
	loc := must.Get(Zone("Europe/Berlin"))(t)
	nights := []Window{
		{must.Get(Parse("0 22 * * 1-5"))(t), 4 * time.Hour},
		{must.Get(Parse("0 12 * * 6"))(t), time.Hour},
	}
	for at, want := range map[string]string{
		"2026-05-06T21:59:59+02:00": "2026-05-06T22:00:00+02:00",
		"2026-05-06T22:00:00+02:00": "",
		"2026-05-07T01:59:59+02:00": "",
		"2026-05-07T02:00:00+02:00": "2026-05-07T22:00:00+02:00",
		"2026-05-09T01:00:00+02:00": "", // the window of Friday
		"2026-05-09T02:00:00+02:00": "2026-05-09T12:00:00+02:00",
		"2026-05-09T13:00:00+02:00": "2026-05-11T22:00:00+02:00",
	} {
		now := must.Get(time.Parse(time.RFC3339, at))(t)
		if want == "" {
			want = at
		}
		must.Be(t, at, want, Opens(nights, now, loc).In(loc).Format(time.RFC3339))
	}
}
