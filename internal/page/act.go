package page

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/rolewright/rolewright/internal/history"
)

// action is what a reader may ask for on the page of an object. Done is the text after the action
// has changed something, Idle the text if it has not.
type action struct{ Do, Label, Done, Idle string }

// actions returns all actions, in the order of their buttons.
func actions() []action {
	return []action{
		{"reconcile", "Reconcile now", "A run is asked for. Where the object is suspended, it waits.", ""},
		{"suspend-1h", "Suspend for 1 hour", "No run starts for an hour.", ""},
		{"suspend", "Suspend until resumed", "No run starts until the object is resumed.", ""},
		{"resume", "Resume", "Runs start again.", "The object was not suspended."},
		{"cancel", "Cancel the run", "The run in progress is asked to stop.", "There was no run in progress."},
	}
}

// Asked is what a reader has asked for by a button on the page of an object.
type Asked struct {
	// Do is Do of one of [actions].
	Do string
	// UID is the UID of the object on the page; empty if the page did not know it.
	UID string
	// Run is the ID of the run in progress on the page; empty if there was none.
	Run string
}

// ErrChanged is in the chain of the error of an action on something that no longer exists:
// another object has the name now, or another run is in progress.
var ErrChanged = errors.New("open the page of the object again, and check whether you still want this")

// maxForm is how many bytes the body of a form may have.
const maxForm = 1 << 10

// act does what the form on the page of an object asks for, and redirects to the page.
func (s *Server) act(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	err := r.ParseForm()
	at := slices.IndexFunc(actions(), func(a action) bool { return a.Do == r.PostForm.Get("do") })
	if err != nil || at < 0 {
		s.show(w, r, func(*http.Request) (view, error) { return view{}, badRequest("use a button of the page of an object") })
		return
	}
	runs, _, err := s.runsOfObject(r)
	if err != nil {
		s.show(w, r, func(*http.Request) (view, error) { return view{}, err })
		return
	}
	o := runs[0].Object
	asked, changed := Asked{Do: actions()[at].Do, UID: r.PostForm.Get("uid"), Run: r.PostForm.Get("run")}, false
	if err = stale(runs, asked); err == nil {
		changed, err = s.Act(r.Context(), o, asked)
	}
	if err != nil {
		s.show(w, r, func(r *http.Request) (view, error) {
			v, failed := s.object(r)
			if failed != nil {
				return view{}, err
			}
			v.Refresh, v.code = false, codeOf(err)
			if d, is := v.Data.(*objectData); is {
				d.Said = err.Error()
			}
			return v, nil
		})
		return
	}
	came := "did"
	if !changed {
		came = "idle"
	}
	back := view{Base: s.Base}.Link("object", "group", o.Group, "kind", o.Kind, "namespace", o.Namespace, "name", o.Name, came, actions()[at].Do)
	http.Redirect(w, r, back, http.StatusSeeOther)
}

// stale returns an error if the run to cancel has ended, and another one is in progress. The status
// is not reliable for that: with manageStatus: false, it may have an old record of runs.
func stale(runs []history.Brief, asked Asked) error {
	ended := func(r history.Brief) bool { return r.ID == asked.Run && !r.Finished.IsZero() }
	inProgress := func(r history.Brief) bool { return r.Finished.IsZero() }
	if asked.Do == "cancel" && slices.ContainsFunc(runs, ended) && slices.ContainsFunc(runs, inProgress) {
		return fmt.Errorf("run %.8s has ended, and another one is in progress: %w", asked.Run, ErrChanged)
	}
	return nil
}

// codeOf returns the HTTP status for the error of an action: that of the API server, if it has refused.
func codeOf(err error) int {
	if errors.Is(err, ErrChanged) {
		return http.StatusConflict
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Code/100 == 4 {
		return int(status.Status().Code)
	}
	return http.StatusBadGateway
}

// said returns the text about the action that led to the page. The text comes from this
// package and not from the address, which anybody can write.
func said(q url.Values) string {
	for _, a := range actions() {
		switch a.Do {
		case q.Get("did"):
			return a.Done
		case q.Get("idle"):
			return a.Idle
		}
	}
	return ""
}

// sameOrigin reports whether a page of this server has sent a form. If a browser does not send
// Sec-Fetch-Site, Origin names the page's server. If the request came by https, the page must have
// come by https, too. If it came by http, a page by https is accepted as well: a proxy in front of
// the server may not say that it was asked by https.
func sameOrigin(r *http.Request) bool {
	if from := r.Header.Get("Sec-Fetch-Site"); from != "" {
		return from == "same-origin"
	}
	from, err := url.Parse(r.Header.Get("Origin"))
	encrypted := r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https"
	return err == nil && (from.Scheme == "https" || from.Scheme == "http" && !encrypted) && from.Host == r.Host
}
