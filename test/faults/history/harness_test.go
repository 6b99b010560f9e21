package history

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rolewright/rolewright/test/must"
)

// world builds a history. Its machine was booted before the epoch, so that wall clock and boot clock differ by a known
// time.
type world struct {
	t   *testing.T
	dir string
	rv  int
	// life is what the API server stores, by UID.
	life map[string]map[string]any
	// unanswered makes writes stored, but without an answer for the client.
	unanswered bool
}

var epoch = time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)

// uptime is the machine's uptime in seconds when a test begins. Times in tests count from then.
const uptime = 1000

func boot(s float64) string { return fmt.Sprintf("%f", uptime+s) }

func bootNanos(s float64) string { return fmt.Sprint(int64((uptime + s) * 1e9)) }

// at returns the wall clock at that second.
func at(s float64) string {
	return epoch.Add(time.Duration(s * float64(time.Second))).Format(time.RFC3339Nano)
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), life: map[string]map[string]any{}}
	w.driver("start", 1, `"replica":"a"`)
	return w
}

func (w *world) line(file, line string) {
	w.t.Helper()
	f := must.Get(os.OpenFile(filepath.Join(w.dir, file), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600))(w.t)
	defer f.Close()
	must.Get(f.WriteString(line))(w.t)
}

func (w *world) driver(event string, s float64, more ...string) {
	w.line(driverFile, fmt.Sprintf(`{"event":%q,"boot":%s,"time":%q%s}`+"\n", event, boot(s), at(s), comma(more)))
}

func comma(more []string) string {
	if len(more) == 0 {
		return ""
	}
	return "," + strings.Join(more, ",")
}

// request adds an audit event; answer may be nil.
func (w *world) request(s float64, agent, verb, resource, name, sub string, code int, answer map[string]any, more ...string) {
	data := []byte("null")
	if answer != nil {
		var err error
		if data, err = json.Marshal(answer); err != nil {
			w.t.Fatal(err)
		}
	}
	w.line(auditFile, fmt.Sprintf(`{"auditID":"a%f","stage":"ResponseComplete","verb":%q,"userAgent":%q,"user":{"username":"admin"},`+
		`"objectRef":{"resource":%q,"namespace":"ns","name":%q,"subresource":%q},"responseStatus":{"code":%d},`+
		`"requestReceivedTimestamp":%q,"stageTimestamp":%q,"responseObject":%s%s}`+"\n",
		s, verb, agent, resource, name, sub, code, at(s), at(s+0.001), data, comma(more)))
}

const operatorAgent = "rolewright/v1"

// write changes the object with that UID and stores it, as a request of an agent.
func (w *world) write(s float64, agent, verb, sub, uid string, change func(o map[string]any)) {
	o := w.life[uid]
	if o == nil {
		o = map[string]any{"kind": "Thing", "metadata": map[string]any{"name": "o-" + uid, "uid": uid, "generation": 1}, "spec": map[string]any{}}
		w.life[uid] = o
	}
	change(o)
	w.rv++
	meta(o)["resourceVersion"] = fmt.Sprint(w.rv)
	if w.unanswered {
		w.request(s, agent, verb, "things", "o-"+uid, sub, 504, nil)
		return
	}
	w.request(s, agent, verb, "things", "o-"+uid, sub, 200, o)
}

func meta(o map[string]any) map[string]any { return o["metadata"].(map[string]any) }

func (w *world) create(s float64, uid, value string) {
	w.write(s, "campaign", "create", "", uid, func(o map[string]any) { o["spec"] = map[string]any{"value": value} })
}

func (w *world) update(s float64, uid, value string) {
	w.write(s, "campaign", "update", "", uid, func(o map[string]any) {
		o["spec"] = map[string]any{"value": value}
		meta(o)["generation"] = meta(o)["generation"].(int) + 1
	})
}

func (w *world) finalizer(s float64, uid string) {
	w.write(s, operatorAgent, "patch", "", uid, func(o map[string]any) { meta(o)["finalizers"] = []string{"f.example.com/x"} })
}

// delete requests the deletion of an object that has a finalizer.
func (w *world) delete(s float64, uid string) {
	w.write(s, "campaign", "delete", "", uid, func(o map[string]any) {
		meta(o)["deletionTimestamp"] = at(s)
		meta(o)["generation"] = meta(o)["generation"].(int) + 1
	})
}

func (w *world) release(s float64, uid string) {
	w.write(s, operatorAgent, "patch", "", uid, func(o map[string]any) { delete(meta(o), "finalizers") })
}

// begin adds the record before a run.
func (w *world) begin(s float64, uid, run, cause string, generation int) {
	w.write(s, operatorAgent, "patch", "status", uid, func(o map[string]any) {
		ansible(o)["activeRun"] = map[string]any{"id": run, "cause": cause, "generation": generation}
		conditions(o, "Successful", "False")
	})
}

// conclude adds the record after a run.
func (w *world) conclude(s float64, uid, run, cause, result string, generation int) {
	w.write(s, operatorAgent, "patch", "status", uid, func(o map[string]any) {
		delete(ansible(o), "activeRun")
		ansible(o)["lastRun"] = map[string]any{"id": run, "cause": cause, "generation": generation, "result": result, "reason": result, "finished": at(s)}
		if result != interrupted {
			o["status"].(map[string]any)["observedGeneration"] = generation
		}
		if result == succeeded {
			conditions(o, "Successful", "True")
		} else {
			conditions(o, "Successful", "False")
		}
	})
}

func ansible(o map[string]any) map[string]any {
	if o["status"] == nil {
		o["status"] = map[string]any{"ansible": map[string]any{}}
	}
	return o["status"].(map[string]any)["ansible"].(map[string]any)
}

func conditions(o map[string]any, kind, value string) {
	o["status"].(map[string]any)["conditions"] = []any{map[string]any{"type": kind, "status": value, "reason": "x"}}
}

// run describes what a run itself records, with beats, and what the ledger records of it.
type run struct {
	id, uid, value string
	generation     int
	begin, end     float64
	deleting       bool
	// killed leaves out the end, unledgered the ledger. ended is added to the end, code and more to the ledger.
	killed, unledgered bool
	ended              string
	code               int
	more               string
}

func (w *world) run(r run) {
	generation := max(r.generation, 1)
	truth := func(event string, s float64, more string) {
		w.line(truthFile, fmt.Sprintf(`{"event":%q,"run":%q,"uid":%q,"generation":%d,"deleting":%t,"value":%q,"boot":%s,"time":%q,"pid":5%s}`+"\n",
			event, r.id, r.uid, generation, r.deleting, r.value, boot(s), at(s), more))
	}
	if !r.unledgered {
		w.line("ledger-a.jsonl", fmt.Sprintf(`{"event":"start","run":%q,"uid":%q,"generation":%d,"deleting":%t,"boot":%s,"time":%q}`+"\n",
			r.id, r.uid, generation, r.deleting, bootNanos(r.begin-0.01), at(r.begin-0.01)))
	}
	truth("begin", r.begin, "")
	for s := r.begin + 0.05; s < r.end; s += 0.05 {
		truth("beat", s, "")
	}
	if !r.killed {
		more := r.ended
		if more == "" {
			more = `,"rc":0,"verdict":"ok","status":"successful"`
		}
		truth("end", r.end, more)
	}
	if !r.unledgered {
		w.line("ledger-a.jsonl", fmt.Sprintf(`{"event":"end","run":%q,"uid":%q,"boot":%s,"time":%q,"code":%d%s}`+"\n",
			r.id, r.uid, bootNanos(r.end+0.02), at(r.end+0.02), r.code, r.more))
	}
}

// settle records the end: the objects as they are, and dependents that match them.
func (w *world) settle(s float64) {
	w.driver("stable", s)
	end := map[string]any{"stable": true, "want": map[string]any{}}
	var objects, owned []any
	for _, o := range w.living() {
		objects = append(objects, o)
		name := meta(o)["name"].(string)
		owned = append(owned, map[string]any{
			"metadata": map[string]any{"name": name, "ownerReferences": []any{map[string]any{"kind": "Thing", "uid": meta(o)["uid"]}}},
			"data":     map[string]any{"spec": o["spec"].(map[string]any)["value"]},
		})
		end["want"].(map[string]any)[name] = map[string]any{"value": o["spec"].(map[string]any)["value"]}
	}
	end["objects"], end["owned"] = objects, owned
	w.file(endFile, end)
}

// fault records that a fault has hit the operator.
func (w *world) fault(s float64) {
	w.line(wireFile, fmt.Sprintf(`{"sent":%s,"replica":"a","fault":"error"}`+"\n", boot(s)))
}

// told records that the client was told that a generation is stored.
func (w *world) told(s float64, uid string, generation int) {
	w.line(clientFile, fmt.Sprintf(`{"op":"update","name":"o-%s","uid":%q,"generation":%d,"invoked":%s,"completed":%s}`+"\n",
		uid, uid, generation, boot(s), boot(s+0.01)))
}

// leases records that a replica wrote the Lease, and that there is leader election.
func (w *world) leases(replica string, s float64) {
	w.driver("start", s, `"replica":"`+replica+`"`, `"leaderElect":true`, `"renewDeadline":"10s"`)
	w.request(s, operatorAgent+"/leader-election", "update", "leases", "leader", "", 200, nil)
	w.line(wireFile, fmt.Sprintf(`{"auditID":"a%f","sent":%s,"replica":%q}`+"\n", s, boot(s), replica))
}

// sent records a write of a run through a replica.
func (w *world) sent(s float64, replica, run string) {
	w.request(s, runnerAgent+run, "create", "configmaps", "x", "", 201, nil)
	w.line(wireFile, fmt.Sprintf(`{"auditID":"a%f","sent":%s,"replica":%q}`+"\n", s, boot(s), replica))
}

// end returns the recorded end.
func (w *world) end() map[string]any {
	w.t.Helper()
	var end map[string]any
	data, err := os.ReadFile(filepath.Join(w.dir, endFile))
	if err == nil {
		err = json.Unmarshal(data, &end)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return end
}

func (w *world) changeEnd(change func(end map[string]any)) {
	end := w.end()
	change(end)
	w.file(endFile, end)
}

// owned returns the first dependent of an end.
func owned(end map[string]any) map[string]any { return end["owned"].([]any)[0].(map[string]any) }

// keep makes directories of runs, and ends the history.
func (w *world) keep(runs ...string) {
	w.t.Helper()
	for _, run := range runs {
		must.Do(w.t, os.MkdirAll(filepath.Join(w.dir, "runner-a/.runs", run), 0o700))
	}
	w.driver("steady-begin", 7)
	w.driver("steady-end", 8)
}

// living returns the objects that still exist.
func (w *world) living() []map[string]any {
	var found []map[string]any
	var uids []string
	for uid := range w.life {
		uids = append(uids, uid)
	}
	slices.Sort(uids)
	for _, uid := range uids {
		o := w.life[uid]
		if meta(o)["deletionTimestamp"] == nil || meta(o)["finalizers"] != nil {
			found = append(found, o)
		}
	}
	return found
}

func (w *world) file(name string, content any) {
	w.t.Helper()
	data, err := json.Marshal(content)
	if err == nil {
		err = os.WriteFile(filepath.Join(w.dir, name), data, 0o600)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// check loads the world and returns the violated invariants, and the texts of the violations.
func (w *world) check() ([]string, string) {
	w.t.Helper()
	h := must.Get(Load(w.dir))(w.t)
	if len(h.Notes) > 0 {
		w.t.Errorf("notes: %v", h.Notes)
	}
	var invariants, texts []string
	for _, v := range Check(h) {
		texts = append(texts, v.String())
		if !slices.Contains(invariants, v.Invariant) {
			invariants = append(invariants, v.Invariant)
		}
	}
	return invariants, strings.Join(texts, "\n")
}
