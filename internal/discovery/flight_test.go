package discovery

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// gated answers when its channel is closed, or ends when the request is cancelled.
func gated(gate <-chan struct{}, answer http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-gate:
			answer(w, r)
		case <-r.Context().Done():
		}
	}
}

// asker is a client that asks in the background.
type asker struct {
	leave  context.CancelFunc
	answer *httptest.ResponseRecorder
}

// start starts a client and returns when it waits or has its answer.
func start(t *testing.T, c *Cache, wg *sync.WaitGroup, path string) *asker {
	t.Helper()
	ctx, leave := context.WithCancel(t.Context())
	a := &asker{leave: leave, answer: httptest.NewRecorder()}
	wg.Go(func() {
		c.ServeHTTP(a.answer, httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil))
	})
	synctest.Wait()
	return a
}

func TestServeHTTP_AsksOnceForAllWhoWait(t *testing.T) {
	answers := map[string]http.HandlerFunc{"a document": says(200, "one"), "an error": says(503, "one")}
	for name, answer := range answers {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, s := scripted(t, nil)
				gate := make(chan struct{})
				s.will(gated(gate, answer))
				var wg sync.WaitGroup
				var askers []*asker
				for range 100 {
					askers = append(askers, start(t, c, &wg, "/apis"))
				}
				close(gate)
				wg.Wait()
				s.wantAsked(t, 1)
				status := askers[0].answer.Code
				for _, a := range askers {
					want(t, a.answer, status, "one")
				}
			})
		})
	}
}

func TestServeHTTP_WhoCameLaterIsNotToldOfAnEarlierAbsence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := scripted(t, nil)
		gate := make(chan struct{})
		s.will(gated(gate, says(404, "no")))
		var wg sync.WaitGroup
		first := start(t, c, &wg, "/apis/new.test")
		time.Sleep(time.Millisecond)
		later := start(t, c, &wg, "/apis/new.test")
		s.will(says(200, "there")) // while the first answer is on its way
		close(gate)
		wg.Wait()
		want(t, first.answer, 404, "no")
		want(t, later.answer, 200, "there")
	})
}

func TestServeHTTP_AVanishedClientFailsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := scripted(t, nil)
		gate := make(chan struct{})
		s.will(gated(gate, says(200, "one")))
		var wg sync.WaitGroup
		first, second, third := start(t, c, &wg, "/apis"), start(t, c, &wg, "/apis"), start(t, c, &wg, "/apis")
		first.leave() // the client that started the request
		synctest.Wait()
		third.leave()
		synctest.Wait()
		close(gate)
		wg.Wait()
		want(t, second.answer, 200, "one")
		s.wantAsked(t, 1)
	})
}

func TestServeHTTP_ARequestThatNobodyWaitsForEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := scripted(t, nil)
		began := time.Now()
		s.will(gated(nil, nil))
		var wg sync.WaitGroup
		first, second := start(t, c, &wg, "/apis"), start(t, c, &wg, "/apis")
		first.leave()
		second.leave()
		wg.Wait()
		if waited := time.Since(began); waited != 0 {
			t.Errorf("the request went on for %v", waited)
		}
		s.will(says(200, "one"))
		want(t, ask(t, c, "/apis"), 200, "one") // later clients are not affected
	})
}

func TestServeHTTP_ATransportThatPanicsLeavesNobodyWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := scripted(t, nil)
		gate := make(chan struct{})
		s.will(gated(gate, func(http.ResponseWriter, *http.Request) { panic("broken") }))
		var wg sync.WaitGroup
		wg.Go(func() {
			defer func() { _ = recover() }()
			c.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/apis", nil))
		})
		synctest.Wait()
		second := start(t, c, &wg, "/apis")
		close(gate)
		wg.Wait()
		if second.answer.Code != 503 {
			t.Errorf("the answer is %d %q, want 503", second.answer.Code, second.answer.Body)
		}
	})
}

func TestInvalidate_NothingIsFreshUntilThingsHaveSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := scripted(t, says(200, "one"))
		ask(t, c, "/apis")
		c.Invalidate()
		s.asked()
		for range unsettledFor / time.Second {
			ask(t, c, "/apis")
			time.Sleep(time.Second)
		}
		s.wantAsked(t, int(unsettledFor/time.Second))
		ask(t, c, "/apis")
		ask(t, c, "/apis")
		s.wantAsked(t, 0) // the last answer is a second old
	})
}

func TestInvalidate_ARequestFromBeforeIsOfNoUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := scripted(t, nil)
		gate := make(chan struct{})
		s.will(gated(gate, says(200, "before")))
		var wg sync.WaitGroup
		before := start(t, c, &wg, "/apis")
		time.Sleep(time.Millisecond)
		c.Invalidate()
		after := start(t, c, &wg, "/apis")
		s.will(says(200, "after"))
		close(gate)
		wg.Wait()
		want(t, before.answer, 200, "before")
		want(t, after.answer, 200, "after")
	})
}

func TestInvalidate_WhoWaitsForTheNextRequestSharesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := scripted(t, nil)
		c.Invalidate()
		gate := make(chan struct{})
		s.will(gated(gate, says(200, "first")))
		var wg sync.WaitGroup
		first := start(t, c, &wg, "/apis")
		var others []*asker
		for range 100 {
			time.Sleep(time.Microsecond)
			others = append(others, start(t, c, &wg, "/apis"))
		}
		time.Sleep(time.Microsecond)
		s.will(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(time.Millisecond)
			says(200, "second")(w, r)
		})
		close(gate)
		wg.Wait()
		s.wantAsked(t, 2)
		want(t, first.answer, 200, "first")
		for _, a := range others {
			want(t, a.answer, 200, "second")
		}
	})
}
