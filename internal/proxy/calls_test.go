package proxy

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// callsOf implements the calls of a run for the test.
type callsOf struct{}

func (callsOf) About() any      { return map[string]string{"runID": "id"} }
func (callsOf) Names() []string { return []string{"echo", "fail", "full", "wrong"} }

func (callsOf) Call(_ context.Context, name string, body []byte) (any, error) {
	switch name {
	case "wrong":
		return nil, apierrors.NewBadRequest("it is wrong")
	case "full":
		return nil, apierrors.NewTooManyRequestsError("too many")
	case "fail":
		return nil, errors.New("broken")
	}
	return map[string]int{"length": len(body)}, nil
}

// The proxy answers calls only for the run of the token, and within limits. It never forwards them.
func TestCalls(t *testing.T) {
	api := script(t, nil, plainly)
	p := startProxy(t, api.config())
	_, client, _ := admit(t, p, Grant{Calls: callsOf{}, OwnNamespaceOnly: true})
	_, without, _ := admit(t, p, Grant{})
	gone, ended, _ := admit(t, p, Grant{Calls: callsOf{}})
	gone.Revoke()
	fenced, refused, _ := admit(t, p, Grant{Calls: callsOf{}})
	fenced.Refuse("the object is gone")
	for name, tt := range map[string]struct {
		client             *http.Client
		method, path, body string
		code               int
		answer             string
	}{
		"about":           {client, "GET", "/rolewright/v1/run", "", 200, `{"runID":"id"}`},
		"call":            {client, "POST", "/rolewright/v1/run/echo", "12345", 200, `{"length":5}`},
		"largest":         {client, "POST", "/rolewright/v1/run/echo", strings.Repeat("a", maxCall), 200, `65536`},
		"too large":       {client, "POST", "/rolewright/v1/run/echo", strings.Repeat("a", maxCall+1), 413, "larger than 65536 bytes"},
		"wrong method":    {client, "PUT", "/rolewright/v1/run/echo", "", 405, "use POST"},
		"about by POST":   {client, "POST", "/rolewright/v1/run", "", 405, "use GET"},
		"unknown":         {client, "POST", "/rolewright/v1/run/other", "", 404, "this operator has echo, fail, full, wrong"},
		"below a call":    {client, "POST", "/rolewright/v1/run/echo/x", "", 404, "no such call"},
		"another version": {client, "GET", "/rolewright/v2", "", 404, "no such call"},
		"wrong":           {client, "POST", "/rolewright/v1/run/wrong", "", 400, "it is wrong"},
		"too many":        {client, "POST", "/rolewright/v1/run/full", "", 429, "too many"},
		"broken":          {client, "POST", "/rolewright/v1/run/fail", "", 500, "broken"},
		"no run":          {without, "GET", "/rolewright/v1/run", "", 403, "is for runs"},
		"ended":           {ended, "POST", "/rolewright/v1/run/echo", "", 401, "token of a run in progress"},
		"fenced":          {refused, "POST", "/rolewright/v1/run/echo", "", 503, "the object is gone"},
		"fenced, asks":    {refused, "GET", "/rolewright/v1/run", "", 200, "id"},
	} {
		code, answer, err := send(t.Context(), tt.client, tt.method, p.URL()+tt.path, tt.body)
		if err != nil || code != tt.code || !strings.Contains(answer, tt.answer) {
			t.Errorf("%s: %d %s, %v; want %d %q", name, code, answer, err, tt.code, tt.answer)
		}
	}
	if seen := api.seen(); len(seen) > 0 {
		t.Errorf("forwarded: %v", seen)
	}
}
