package api

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/rolewright/rolewright/test/must"
)

// A client that comes again and again costs the API server one review, whether its token is valid or not. Wrong tokens do
// not displace valid ones.
func TestAuthenticate_AsksOnceForAWhile(t *testing.T) {
	t.Parallel()
	client, now := reviews(), time.Now()
	a := newAccess(client, func() time.Time { return now })
	asked := func(token string, code int) int {
		client.ClearActions()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		r.Header.Set("Authorization", "Bearer "+token)
		_, bad := a.authenticate(r)
		got := http.StatusOK
		if bad != nil {
			got = bad.code
		}
		must.Be(t, token, code, got)
		return len(client.Actions())
	}
	for token, code := range map[string]int{"admin": http.StatusOK, "forged": http.StatusUnauthorized} {
		must.Be(t, token+" at first", 1, asked(token, code))
		must.Be(t, token+" again", 0, asked(token, code))
	}
	for i := range maxAnswers + 1 {
		a.wrong.Add([32]byte{byte(i), byte(i >> 8), byte(i >> 16)}, struct{}{}, answerAge)
	}
	must.Be(t, "wrong tokens that are kept at most", maxAnswers, len(a.wrong.Keys()))
	must.Be(t, "admin after "+strconv.Itoa(maxAnswers)+" others", 0, asked("admin", http.StatusOK))
	now = now.Add(answerAge + time.Second)
	must.Be(t, "forged, later", 1, asked("forged", http.StatusUnauthorized))
}
