package api

import (
	"net/http"
	"testing"
)

// One user leaves streams for others, and gets places back.
func TestStreams(t *testing.T) {
	t.Parallel()
	var s streams
	codes := func(user string, n int) (refused map[int]int) {
		refused = map[int]int{}
		for range n {
			if bad := s.begin(user); bad != nil {
				refused[bad.code]++
			}
		}
		return refused
	}
	for _, user := range []string{"a", "b", "c", "d"} {
		if got := codes(user, maxStreamsOfUser+1); got[http.StatusTooManyRequests] != 1 || len(got) != 1 {
			t.Errorf("%s: refused %v", user, got)
		}
	}
	if got := codes("e", maxStreamsOfUser); len(got) != 0 {
		t.Errorf("e: refused %v", got)
	}
	if got := codes("f", 1); got[http.StatusServiceUnavailable] != 1 {
		t.Errorf("f: refused %v", got)
	}
	s.end("a")
	if got := codes("f", 1); len(got) != 0 {
		t.Errorf("f, in the place of a: refused %v", got)
	}
}
