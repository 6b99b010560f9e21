package discovery

import (
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestStore_TheLeastRecentlyUsedGoFirst(t *testing.T) {
	const each = entryOverhead + len("/a") + 100
	s := newStore(3 * each)
	document := func() *answer { return &answer{status: 200, body: make([]byte, 100)} }
	for _, path := range []string{"/a", "/b", "/c"} {
		s.put(question{path: path}, document())
	}
	s.get(question{path: "/a"})
	s.put(question{path: "/d"}, document())
	for path, kept := range map[string]bool{"/a": true, "/b": false, "/c": true, "/d": true} {
		if got := s.get(question{path: path}) != nil; got != kept {
			t.Errorf("%s is kept: %v, want %v", path, got, kept)
		}
	}
	s.put(question{path: "/a"}, document())
	if s.size != 3*each || len(s.entries) != 3 || s.recent.Len() != 3 {
		t.Errorf("%d bytes in %d entries (%d listed), want %d in 3", s.size, len(s.entries), s.recent.Len(), 3*each)
	}
}

func TestStore_WhatNobodyUsesLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(maxTotal)
		used, unused := question{path: "/used"}, question{path: "/unused"}
		s.put(used, &answer{})
		s.put(unused, &answer{})
		for range 2 {
			time.Sleep(keepFor / 2)
			s.get(used)
		}
		if s.entries[unused] != nil || s.entries[used] == nil {
			t.Errorf("kept are %v", s.entries)
		}
		time.Sleep(keepFor)
		if s.get(used) != nil || s.size != 0 {
			t.Errorf("%d bytes are kept", s.size)
		}
	})
}

func TestStore_AnOvertakenAnswerIsDropped(t *testing.T) {
	s := newStore(maxTotal)
	now := time.Now()
	newer := &answer{begun: now}
	s.put(question{}, newer)
	s.put(question{}, &answer{begun: now.Add(-1)})
	if s.get(question{}) != newer {
		t.Error("the older answer is kept")
	}
}

func TestServeHTTP_MemoryStaysBounded(t *testing.T) {
	cases := map[string]struct {
		body string // of each document
		many int    // number of documents
	}{
		"large documents": {strings.Repeat("x", maxDocument-1), 4},
		"nonsense":        {"", 2 * maxTotal / entryOverhead},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, _ := scripted(t, says(200, tc.body))
				for i := range tc.many {
					ask(t, c, "/apis/g"+strconv.Itoa(i))
				}
				if c.store.size > maxTotal || len(c.store.entries) >= tc.many || len(c.store.entries) == 0 {
					t.Errorf("%d bytes in %d entries are kept", c.store.size, len(c.store.entries))
				}
				if len(c.flights) != 0 {
					t.Errorf("%d requests are in progress", len(c.flights))
				}
			})
		})
	}
}
