package page_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/rolewright/rolewright/test/runs"
)

// BenchmarkPage measures a view of 2,000 objects and 20,000 runs after the first request has read them.
func BenchmarkPage(b *testing.B) {
	all := runs.Many(2000, 10)
	server := runs.New(b, all...).Serve(b)
	for i, path := range views(all[len(all)-2000], all[len(all)-1]) {
		name := strings.Fields("overview object run compare trends report queue")[i]
		if a := get(b, server, path, nil); a.Code != http.StatusOK {
			b.Fatal(name, a.Code)
		}
		b.Run(name, func(b *testing.B) {
			size := 0
			for b.Loop() {
				size = len(get(b, server, path, nil).Body)
			}
			b.ReportMetric(float64(size), "bytes")
		})
	}
}
