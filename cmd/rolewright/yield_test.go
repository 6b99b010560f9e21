package main

import (
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A client that can write the Lease can write anything into it. A request that is not bounded has no effect, now or later.
func TestYields_WhatIsNoBoundedRequestAsksForNothing(t *testing.T) {
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(d time.Duration) string { return now.Add(d).Format(time.RFC3339) }
	for name, c := range map[string]struct{ to, until, want string }{
		"none":              {},
		"for a moment":      {to: "dev", until: at(30 * time.Second), want: "dev"},
		"for the longest":   {to: "dev", until: at(maxYield), want: "dev"},
		"over":              {to: "dev", until: at(0)},
		"to this operator":  {to: "me", until: at(time.Minute)},
		"for too long":      {to: "dev", until: at(maxYield + time.Second)},
		"for ever":          {to: "dev", until: "9999-12-31T23:59:59Z"},
		"no end":            {to: "dev"},
		"no name":           {until: at(time.Minute)},
		"no time":           {to: "dev", until: "soon"},
		"a long time":       {to: "dev", until: at(time.Minute) + strings.Repeat("0", 1<<20)},
		"a long name":       {to: strings.Repeat("d", 254), until: at(time.Minute)},
		"a name with lines": {to: "dev\nlevel=error", until: at(time.Minute)},
	} {
		t.Run(name, func(t *testing.T) {
			l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{yieldTo: c.to, yieldUntil: c.until}}}
			y := yields{log: logr.Discard()}
			y.see(l, now)
			if got := y.to("me", now); got != c.want {
				t.Errorf("the Lease is left to %q, want %q", got, c.want)
			}
			y.see(l, now.Add(maxYield))
			if got := y.to("me", now.Add(maxYield)); got != "" {
				t.Errorf("%s later the Lease is left to %q", maxYield, got)
			}
		})
	}
}
