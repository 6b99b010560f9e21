package status

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"regexp"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
)

// maxDependents is the largest number of recorded resources of dependents.
const maxDependents = 100

// Parts of status.ansible that are read back.
const (
	partLast       = "lastRun"
	partActive     = "activeRun"
	partDependents = "dependents"
	partHandled    = "lastHandledReconcileAt"
)

// Record is what a status says about the runs of its object. Anyone who may write
// the status may have written it: every field has a form that this package writes,
// and a limited size, but is true only as far as other evidence agrees.
type Record struct {
	// Last is the last run that ended, with the request that was last handled; nil
	// if there is none, or if ansible-operator has run the object since.
	Last *Run `json:",omitzero"`
	// Active is the run that is recorded as begun but not as ended; nil if there
	// is none.
	Active *Active `json:",omitzero"`
	// Dependents are the resources of the objects that the object owned after its
	// last run, at most [maxDependents].
	Dependents []schema.GroupVersionResource `json:",omitzero"`
	// Ended is how the last run ended, by the conditions. It is set only if Last is nil: the
	// schema has dropped the record, or ansible-operator made the run. It is empty if there
	// was no run, or none that went to its end.
	Ended Result `json:",omitzero"`
	// EndedGeneration is the generation of that run; 0 if that is not known.
	EndedGeneration int64 `json:",omitzero"`
	// Held is what the conditions say about a held run; nil for nothing.
	Held *Held `json:",omitzero"`
	// NotWatched is true if there are warnings about what cannot be watched.
	NotWatched bool `json:",omitzero"`
	// Rejected names the parts of status.ansible that do not have the form that
	// this package writes. They are treated as absent.
	Rejected []string `json:",omitzero"`
}

// Held is a run that is held back, with its cause and the object's generation. Until is the Unix time at which a maintenance
// window opens; 0 if a pause holds the run back. Held is zero if the conditions do not say what is held back.
type Held struct {
	Cause      string `json:",omitzero"`
	Generation int64  `json:",omitzero"`
	Until      int64  `json:",omitzero"`
}

// Read reads the record in a status. Nothing else reads status.ansible to decide about
// runs.
func Read(st map[string]any) Record {
	var r Record
	ansible := mapAt(st, "ansible")
	r.Held = held(st)
	r.NotWatched = saysNotWatched(ansible)
	if v, there := ansible[partLast]; there {
		if last, ok := readRun(v); ok {
			r.Last = &last
		} else {
			r.Rejected = append(r.Rejected, partLast)
		}
	}
	if v, there := ansible[partActive]; there {
		if active, ok := readActive(v); ok {
			r.Active = &active
		} else {
			r.Rejected = append(r.Rejected, partActive)
		}
	}
	if r.Last != nil && r.Active == nil && ranSince(st, *r.Last) {
		r.Last = nil
	}
	if r.Last == nil {
		r.Ended, r.EndedGeneration = ended(st)
	}
	if v, there := ansible[partHandled]; there {
		token, ok := v.(string)
		if ok = ok && IsToken(token); !ok {
			r.Rejected = append(r.Rejected, partHandled)
		} else if r.Last != nil {
			r.Last.Handled = token
		}
	}
	if v, there := ansible[partDependents]; there {
		var ok bool
		if r.Dependents, ok = readDependents(v); !ok {
			r.Rejected = append(r.Rejected, partDependents)
		}
	}
	return r
}

// Pack encodes the record as a text of limited size, for [Unpack]. The text is empty if the record cannot be
// encoded, which the forms of its fields rule out.
func (r Record) Pack() string {
	text, err := json.Marshal(r)
	if err != nil {
		return ""
	}
	return string(text)
}

// Unpack decodes a text of [Record.Pack]; any other text gives an empty record. It does not check forms:
// use [Read] for what others may have written.
func Unpack(text string) Record {
	var r Record
	if json.Unmarshal([]byte(text), &r) != nil {
		return Record{}
	}
	return r
}

// editable returns a copy of a status without the parts that Read rejects.
func editable(st map[string]any) map[string]any {
	out := clone(st)
	for _, part := range Read(out).Rejected {
		delete(mapAt(out, "ansible"), part)
	}
	return out
}

// Forms of texts that people read.
const (
	triggerForm line = 256
	forForm     line = 512
)

// Forms of fields. They also limit the length.
var (
	uuidForm        = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)
	causeForm       = regexp.MustCompile(`^[a-z_]{1,32}$`)
	fingerprintForm = regexp.MustCompile(`^([0-9a-f]{32})?$`)
	modeForm        = regexp.MustCompile(`^check$`)
	inputsForm      = regexp.MustCompile(`^[A-Za-z0-9+/]{1,1000}$`)
	reasonForm      = regexp.MustCompile(`^[A-Za-z]{1,64}$`)
	tokenForm       = regexp.MustCompile(`^[!-~]{1,64}$`)
)

const (
	maxAttempts = 1_000_000
	// maxRequeue is ten years, like the longest period.
	maxRequeue = 10 * 365 * 24 * time.Hour
)

// MaxToken is the largest number of characters in a request for a run.
const MaxToken = 64

// IsToken reports whether s can name a request for a run.
func IsToken(s string) bool { return tokenForm.MatchString(s) }

// fields reads the fields of a run. bad is true once a field did not have its
// form.
type fields struct {
	m   map[string]any
	bad bool
}

func (f *fields) text(field string, form form) string {
	s, ok := f.m[field].(string)
	if !ok || !form.MatchString(s) {
		f.bad = true
		return ""
	}
	return s
}

// optional is text for a field that may be missing.
func (f *fields) optional(field string, form form) string {
	if _, there := f.m[field]; !there {
		return ""
	}
	return f.text(field, form)
}

func (f *fields) integer(field string, most int64) int64 {
	n, ok := wholeNumber(f.m[field])
	f.bad = f.bad || !ok || n < 0
	return min(n, most)
}

func (f *fields) time(field string) time.Time {
	t, ok := readTime(f.m[field])
	f.bad = f.bad || !ok
	return t
}

func readRun(v any) (Run, bool) {
	m, ok := v.(map[string]any)
	if !ok {
		return Run{}, false
	}
	f := fields{m: m}
	r := Run{
		ID: f.text("id", uuidForm), Cause: f.text("cause", causeForm), Generation: f.integer("generation", math.MaxInt64),
		Trigger: f.optional("trigger", triggerForm), Mode: f.optional("mode", modeForm), Inputs: f.optional("inputs", inputsForm),
		Fingerprint: f.text("fingerprint", fingerprintForm), Reason: f.text("reason", reasonForm),
		Started: f.time("started"), Finished: f.time("finished"),
		Result: Result(f.text("result", reasonForm)),
	}
	switch r.Result {
	case Succeeded, Failed, Interrupted:
	default:
		f.bad = true
	}
	if drifted, there := m["drifted"]; there {
		r.Drifted, ok = drifted.(bool)
		f.bad = f.bad || !ok || r.Drifted && (r.Mode != ModeCheck || r.Result != Succeeded)
	}
	if _, there := m["attempts"]; there {
		r.Attempts = f.integer("attempts", maxAttempts)
	}
	if _, there := m["losses"]; there {
		r.Losses = f.integer("losses", maxAttempts)
	}
	if after, there := m["requeueAfter"]; there {
		r.RequeueAfter, ok = readDuration(after)
		f.bad = f.bad || !ok
	}
	if wait, there := m["wait"]; there {
		w, ok := readWait(wait)
		r.Wait = &w
		f.bad = f.bad || !ok || r.Result != Succeeded || w.Since.After(r.Finished.Add(time.Second)) ||
			!w.Since.Before(w.Until) || w.Until.Sub(w.Since) > MaxWait
	}
	if refs, there := m["references"]; there {
		r.References, ok = readReferences(refs)
		f.bad = f.bad || !ok
	}
	r.Permanent = r.RefusesInput()
	if f.bad {
		return Run{}, false
	}
	return r, true
}

// MaxReferences is the largest number of recorded references that a command has reported.
const MaxReferences = 100

// referenceForm is the form of a recorded reference: apiVersion, kind, namespace and name. The
// namespace may be empty.
var referenceForm = regexp.MustCompile(`^[-a-z0-9./]{1,320} [A-Za-z0-9]{1,63} [-a-z0-9]{0,63}/[!-.0-~]{1,253}$`)

// Reference returns the recorded form of a reference; empty if it cannot be recorded.
func Reference(apiVersion, kind, namespace, name string) string {
	if text := apiVersion + " " + kind + " " + namespace + "/" + name; referenceForm.MatchString(text) {
		return text
	}
	return ""
}

func readReferences(v any) (refs []string, ok bool) {
	list, ok := v.([]any)
	if !ok || len(list) > MaxReferences {
		return nil, false
	}
	for _, item := range list {
		text, ok := item.(string)
		if !ok || !referenceForm.MatchString(text) {
			return nil, false
		}
		refs = append(refs, text)
	}
	return refs, true
}

// Forms of a wait. Package waitfor interprets the text of the goal.
var (
	apiVersionForm = regexp.MustCompile(`^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?v[a-z0-9]{1,62}$`)
	kindForm       = regexp.MustCompile(`^[A-Z][A-Za-z0-9]{0,62}$`)
	namespaceForm  = regexp.MustCompile(`^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)?$`)
	nameForm       = regexp.MustCompile(`^[A-Za-z0-9][-A-Za-z0-9_.:]{0,252}$`)
)

// readWait reads a wait, which anyone may have written.
func readWait(v any) (Wait, bool) {
	m, ok := v.(map[string]any)
	if !ok {
		return Wait{}, false
	}
	if _, there := m["namespace"]; !there {
		m = maps.Clone(m)
		m["namespace"] = ""
	}
	f := fields{m: m}
	w := Wait{
		APIVersion: f.text("apiVersion", apiVersionForm), Kind: f.text("kind", kindForm), Namespace: f.text("namespace", namespaceForm),
		Name: f.text("name", nameForm), For: f.text("for", forForm), Since: f.time("since"), Until: f.time("until"),
	}
	return w, !f.bad
}

// Check returns an error about what is wrong with a wait that a run asks for.
func (w Wait) Check() error {
	for _, field := range []struct {
		name, text string
		form       form
	}{
		{"apiVersion", w.APIVersion, apiVersionForm}, {"kind", w.Kind, kindForm}, {"namespace", w.Namespace, namespaceForm},
		{"name", w.Name, nameForm}, {"for", w.For, forForm},
	} {
		if !field.form.MatchString(field.text) {
			return fmt.Errorf("%s: %.80q cannot be one, or is too long", field.name, field.text)
		}
	}
	return nil
}

func readActive(v any) (Active, bool) {
	m, ok := v.(map[string]any)
	if !ok {
		return Active{}, false
	}
	f := fields{m: m}
	a := Active{
		ID: f.text("id", uuidForm), Cause: f.text("cause", causeForm), Generation: f.integer("generation", math.MaxInt64),
		Trigger: f.optional("trigger", triggerForm), Mode: f.optional("mode", modeForm), Started: f.time("started"),
	}
	if f.bad {
		return Active{}, false
	}
	return a, true
}

func readDependents(v any) ([]schema.GroupVersionResource, bool) {
	list, ok := v.([]any)
	if !ok || len(list) > maxDependents {
		return nil, false
	}
	var resources []schema.GroupVersionResource
	for _, item := range list {
		gvr, ok := readResource(item)
		if !ok {
			return nil, false
		}
		resources = append(resources, gvr)
	}
	return resources, true
}

// readResource reads resource.version.group, in the API server's forms. The core
// group is empty.
func readResource(v any) (gvr schema.GroupVersionResource, ok bool) {
	const longest = 63 + 1 + 63 + 1 + 253
	s, _ := v.(string)
	parts := strings.SplitN(s, ".", 3)
	if len(s) > longest || len(parts) < 3 {
		return gvr, false
	}
	gvr = schema.GroupVersionResource{Resource: parts[0], Version: parts[1], Group: parts[2]}
	ok = len(validation.IsDNS1035Label(gvr.Resource)) == 0 && len(validation.IsDNS1035Label(gvr.Version)) == 0 &&
		(gvr.Group == "" || len(validation.IsDNS1123Subdomain(gvr.Group)) == 0)
	return gvr, ok
}
