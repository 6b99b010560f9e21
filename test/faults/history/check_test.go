package history

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// oneRun is the plain life of an object: it is created, gets its finalizer, is run, and the run is recorded.
func oneRun(w *world) {
	w.create(1, "u1", "red")
	w.finalizer(1.1, "u1")
	w.begin(1.2, "u1", "r1", "created", 1)
	w.run(run{id: "r1", uid: "u1", value: "red", begin: 1.5, end: 2})
	w.conclude(2.5, "u1", "r1", "created", succeeded, 1)
}

// twoRuns is the life of an object that is changed once.
func twoRuns(w *world) {
	oneRun(w)
	w.update(3, "u1", "blue")
	w.begin(3.2, "u1", "r2", "changed", 2)
	w.run(run{id: "r2", uid: "u1", value: "blue", generation: 2, begin: 3.5, end: 4})
	w.conclude(4.5, "u1", "r2", "changed", succeeded, 2)
}

// frozenRun is a run that is frozen with its operator from 2 to 22, while another operator repeats it. The frozen run ends
// at the time end.
func frozenRun(w *world, end float64) {
	w.create(1, "u1", "red")
	w.begin(1.2, "u1", "r1", "created", 1)
	w.run(run{id: "r1", uid: "u1", value: "red", begin: 1.5, end: end, killed: true, code: -1, more: `,"signal":"SIGKILL"`})
	w.driver("freeze", 2, `"replica":"a"`)
	w.conclude(18, "u1", "r1", "created", interrupted, 1)
	w.begin(18.5, "u1", "r2", "created", 1)
	w.line(truthFile, fmt.Sprintf(`{"event":"begin","run":"r2","uid":"u1","generation":1,"value":"red","boot":%s}`+"\n", boot(19)))
	w.line(truthFile, fmt.Sprintf(`{"event":"end","run":"r2","uid":"u1","rc":0,"verdict":"ok","status":"successful","boot":%s}`+"\n", boot(19.5)))
	w.driver("thaw", 22, `"replica":"a"`)
	w.conclude(20, "u1", "r2", "interrupted", succeeded, 1)
}

func TestCheck(t *testing.T) {
	failing := `,"rc":2,"verdict":"failed","status":"failed","failures":1`
	tests := []struct {
		name string
		do   func(w *world)
		// want are the violated invariants.
		want []string
	}{
		{name: "a plain life", do: func(w *world) { twoRuns(w); w.settle(9) }},
		{name: "a life with deletion", do: func(w *world) {
			twoRuns(w)
			w.delete(5, "u1")
			w.begin(5.1, "u1", "r3", "deleted", 3)
			w.run(run{id: "r3", uid: "u1", value: "blue", generation: 3, deleting: true, begin: 5.2, end: 5.5})
			w.conclude(5.6, "u1", "r3", "deleted", succeeded, 3)
			w.release(5.7, "u1")
			w.settle(9)
		}},
		{name: "a record of which the writer has died before the answer", do: func(w *world) {
			oneRun(w)
			w.update(3, "u1", "blue")
			w.begin(3.2, "u1", "r2", "changed", 2)
			w.run(run{id: "r2", uid: "u1", value: "blue", generation: 2, begin: 3.5, end: 4})
			w.unanswered = true
			w.conclude(4.5, "u1", "r2", "changed", succeeded, 2)
			w.settle(9)
		}},
		{name: "a record that was not stored, without an answer", do: func(w *world) {
			oneRun(w)
			w.update(3, "u1", "blue")
			w.begin(3.2, "u1", "r2", "changed", 2)
			w.run(run{id: "r2", uid: "u1", value: "blue", generation: 2, begin: 3.5, end: 4})
			w.request(4.5, operatorAgent, "patch", "things", "o-u1", "status", 504, nil)
			w.settle(9)
		}, want: []string{"I3", "I8"}},
		{name: "a failure that is repeated", do: func(w *world) {
			w.create(1, "u1", "red")
			w.begin(1.2, "u1", "r1", "created", 1)
			w.run(run{id: "r1", uid: "u1", value: "red", begin: 1.5, end: 2, ended: failing, code: 2})
			w.conclude(2.5, "u1", "r1", "created", failed, 1)
			w.begin(3.2, "u1", "r2", "retry", 1)
			w.run(run{id: "r2", uid: "u1", value: "red", begin: 3.5, end: 4})
			w.conclude(4.5, "u1", "r2", "retry", succeeded, 1)
			w.settle(9)
		}},
		{name: "a lost run that is repeated", do: func(w *world) {
			w.create(1, "u1", "red")
			w.begin(1.2, "u1", "r1", "created", 1)
			w.run(run{id: "r1", uid: "u1", value: "red", begin: 1.5, end: 3, killed: true, code: -1, more: `,"signal":"SIGTERM","stopped":true`})
			w.driver("exit", 2, `"replica":"a"`)
			w.conclude(4, "u1", "r1", "created", interrupted, 1)
			w.begin(4.2, "u1", "r2", "interrupted", 1)
			w.run(run{id: "r2", uid: "u1", value: "red", begin: 4.5, end: 5})
			w.conclude(5.5, "u1", "r2", "interrupted", succeeded, 1)
			w.settle(9)
		}},
		{name: "a new generation with the inputs of a success", do: func(w *world) {
			oneRun(w)
			w.update(3, "u1", "red")
			w.write(3.5, operatorAgent, "patch", "status", "u1", func(o map[string]any) { o["status"].(map[string]any)["observedGeneration"] = 2 })
			w.settle(9)
		}},
		{name: "a run whose object went away", do: func(w *world) {
			w.create(1, "u1", "red")
			w.begin(1.2, "u1", "r1", "created", 1)
			w.run(run{id: "r1", uid: "u1", value: "red", begin: 1.5, end: 4})
			w.request(3, "campaign", "delete", "things", "o-u1", "", 200, map[string]any{"kind": "Status", "details": map[string]any{"name": "o-u1", "uid": "u1"}})
			delete(w.life, "u1")
			w.settle(9)
		}},

		{name: "I1: two runs that say so", want: []string{"I1"}, do: func(w *world) {
			twoRuns(w)
			w.run(run{id: "r1b", uid: "u1", value: "blue", generation: 2, begin: 3.9, end: 4.2, unledgered: true, killed: true})
			w.conclude(5, "u1", "r1b", "period", interrupted, 2)
		}},
		{name: "I1: a child of the first run outlives it", want: []string{"I1", "I7"}, do: func(w *world) {
			twoRuns(w)
			w.line(truthFile, `{"event":"beat","run":"r1","uid":"u1","boot":1003.7,"pid":77}`+"\n")
		}},
		{name: "I1: the ledger's end is after the next start", want: []string{"I1"}, do: func(w *world) {
			twoRuns(w)
			w.line("ledger-a.jsonl", `{"event":"end","run":"r1","uid":"u1","boot":1004400000000,"code":0}`+"\n")
		}},

		{name: "I2: the result lands on another object", want: []string{"I2"}, do: func(w *world) {
			oneRun(w)
			w.create(3, "u2", "red")
			w.conclude(3.5, "u2", "r1", "created", succeeded, 1)
		}},
		{name: "I2: the generation is that of the live object", want: []string{"I2"}, do: func(w *world) {
			w.create(1, "u1", "red")
			w.run(run{id: "r1", uid: "u1", value: "red", begin: 1.5, end: 2})
			w.update(1.7, "u1", "blue")
			w.conclude(2.5, "u1", "r1", "created", succeeded, 2)
		}},
		{name: "I2: observedGeneration is not the run's", want: []string{"I2"}, do: func(w *world) {
			w.create(1, "u1", "red")
			w.run(run{id: "r1", uid: "u1", value: "red", begin: 1.5, end: 2})
			w.update(1.7, "u1", "blue")
			w.write(2.5, operatorAgent, "patch", "status", "u1", func(o map[string]any) {
				ansible(o)["lastRun"] = map[string]any{"id": "r1", "generation": 1, "result": succeeded}
				o["status"].(map[string]any)["observedGeneration"] = 2
			})
		}},
		{name: "I2: the run was given an older spec", want: []string{"I2"}, do: func(w *world) {
			oneRun(w)
			w.update(3, "u1", "blue")
			w.run(run{id: "r2", uid: "u1", value: "red", generation: 2, begin: 3.5, end: 4})
			w.conclude(4.5, "u1", "r2", "changed", succeeded, 2)
		}},
		{name: "I2: success is claimed without a run", want: []string{"I2"}, do: func(w *world) {
			oneRun(w)
			w.update(3, "u1", "blue")
			w.write(3.5, operatorAgent, "patch", "status", "u1", func(o map[string]any) { o["status"].(map[string]any)["observedGeneration"] = 2 })
		}},

		{name: "I3: a run without a record", want: []string{"I3"}, do: func(w *world) {
			twoRuns(w)
			w.run(run{id: "r3", uid: "u1", value: "blue", generation: 2, begin: 5, end: 6})
			w.settle(9)
		}},
		{name: "I3: a record is changed", want: []string{"I3"}, do: func(w *world) {
			oneRun(w)
			w.conclude(5, "u1", "r1", "created", interrupted, 1)
		}},
		{name: "I3: an older record comes back", want: []string{"I3"}, do: func(w *world) {
			twoRuns(w)
			w.conclude(6, "u1", "r1", "period", succeeded, 1)
		}},
		{name: "I3: a success on disk is recorded as lost", want: []string{"I3"}, do: func(w *world) {
			w.create(1, "u1", "red")
			w.run(run{id: "r1", uid: "u1", value: "red", begin: 1.5, end: 2})
			w.driver("start", 3, `"replica":"a"`)
			w.conclude(6, "u1", "r1", "created", interrupted, 1)
		}},
		{name: "a success that another operator cannot know of", do: func(w *world) {
			w.create(1, "u1", "red")
			w.run(run{id: "r1", uid: "u1", value: "red", begin: 1.5, end: 2})
			w.driver("start", 3, `"replica":"b"`)
			w.conclude(6, "u1", "r1", "created", interrupted, 1)
		}},
		{name: "I2: another object's run is in progress", want: []string{"I2"}, do: func(w *world) {
			oneRun(w)
			w.create(3, "u2", "red")
			w.begin(3.5, "u2", "r1", "created", 1)
		}},
		{name: "a frozen supervisor", do: func(w *world) {
			w.create(1, "u1", "red")
			w.run(run{id: "r1", uid: "u1", value: "red", begin: 1.5, end: 22})
			w.driver("signal", 2, `"signal":"SIGSTOP"`, `"pid":77`)
			w.conclude(23, "u1", "r1", "created", succeeded, 1)
		}},
		{name: "I6: a run that is not cancelled", want: []string{"I6"}, do: func(w *world) {
			w.create(1, "u1", "red")
			w.finalizer(1.1, "u1")
			w.run(run{id: "r1", uid: "u1", value: "red", begin: 1.5, end: 40})
			w.delete(2, "u1")
			w.fault(50)
		}},
		{name: "a run that is cancelled late, by an operator that a fault has met", do: func(w *world) {
			w.file(planFile, map[string]any{"rules": []any{map[string]any{"action": map[string]any{"for": "20s"}}}})
			w.create(1, "u1", "red")
			w.finalizer(1.1, "u1")
			w.run(run{id: "r1", uid: "u1", value: "red", begin: 1.5, end: 40})
			w.delete(2, "u1")
			w.fault(5)
		}},
		{name: "I4: a run that was cut short is a failure", want: []string{"I4"}, do: func(w *world) {
			w.create(1, "u1", "red")
			w.begin(1.2, "u1", "r1", "created", 1)
			w.run(run{id: "r1", uid: "u1", value: "red", begin: 1.5, end: 2, killed: true, code: -1, more: `,"signal":"SIGKILL"`})
			w.conclude(2.5, "u1", "r1", "created", failed, 1)
		}},
		{name: "a run that kills itself is a failure", do: func(w *world) {
			w.create(1, "u1", "red")
			w.begin(1.2, "u1", "r1", "created", 1)
			w.run(run{id: "r1", uid: "u1", value: "red", begin: 1.5, end: 2, killed: true, code: -1, more: `,"signal":"SIGKILL"`})
			w.line(truthFile, `{"event":"dies","run":"r1","uid":"u1","boot":1001.9}`+"\n")
			w.conclude(2.5, "u1", "r1", "created", failed, 1)
		}},
		{name: "I1: one run is begun twice", want: []string{"I1"}, do: func(w *world) {
			oneRun(w)
			w.line(truthFile, `{"event":"begin","run":"r1","uid":"u1","boot":1001.6,"pid":9}`+"\n")
		}},
		{name: "I6: a failure is not tried again", want: []string{"I6"}, do: func(w *world) {
			w.create(1, "u1", "red")
			w.begin(1.2, "u1", "r1", "created", 1)
			w.run(run{id: "r1", uid: "u1", value: "red", begin: 1.5, end: 2, ended: failing, code: 2})
			w.conclude(2.5, "u1", "r1", "created", failed, 1)
			w.driver("stable", 5)
		}},
		{name: "I8: what the client was told is stored is not run", want: []string{"I8"}, do: func(w *world) {
			oneRun(w)
			w.update(3, "u1", "blue")
			w.told(3, "u1", 2)
			w.driver("stable", 5)
		}},
		{name: "what the client was told is superseded", do: func(w *world) {
			oneRun(w)
			w.told(3, "u1", 2)
			w.update(3, "u1", "green")
			w.update(3.1, "u1", "blue")
			w.begin(3.2, "u1", "r2", "changed", 3)
			w.run(run{id: "r2", uid: "u1", value: "blue", generation: 3, begin: 3.5, end: 4})
			w.conclude(4.5, "u1", "r2", "changed", succeeded, 3)
			w.driver("stable", 5)
		}},
		{name: "I7: a process of a run is seen after its record", want: []string{"I7"}, do: func(w *world) {
			oneRun(w)
			w.line(seenFile, `{"run":"r1","last":1002.7}`+"\n")
		}},
		{name: "a run that was frozen with its operator", do: func(w *world) {
			frozenRun(w, 28)
		}},
		{name: "I1, I7: a frozen run goes on when it can", want: []string{"I1", "I7"}, do: func(w *world) {
			frozenRun(w, 45)
			w.run(run{id: "r3", uid: "u1", value: "red", begin: 40, end: 41})
			w.conclude(41.5, "u1", "r3", "period", succeeded, 1)
		}},
		{name: "I8: a run that has asked for another one", want: []string{"I8"}, do: func(w *world) {
			w.create(1, "u1", "red")
			w.run(run{id: "r1", uid: "u1", value: "red", begin: 1.5, end: 2, ended: `,"rc":0,"status":"successful","requeueAfter":"1s"`})
			w.conclude(2.5, "u1", "r1", "created", succeeded, 1)
			w.settle(9)
		}},
		{name: "I15: repeated without a pause", want: []string{"I15"}, do: func(w *world) {
			w.driver("start", 1, `"replica":"a"`, `"retryMin":"1s"`)
			w.create(1, "u1", "red")
			w.run(run{id: "r1", uid: "u1", value: "red", begin: 1.5, end: 2, ended: failing, code: 2})
			w.conclude(2.2, "u1", "r1", "created", failed, 1)
			w.run(run{id: "r2", uid: "u1", value: "red", begin: 2.5, end: 3})
			w.conclude(3.5, "u1", "r2", "retry", succeeded, 1)
		}},
		{name: "I5: no finalizer where there is to be one", want: []string{"I5"}, do: func(w *world) {
			w.driver("start", 1, `"replica":"a"`, `"finalizers":{"things":"f.example.com/x"}`)
			w.create(1, "u1", "red")
			w.run(run{id: "r1", uid: "u1", value: "red", begin: 1.5, end: 2})
			w.conclude(2.5, "u1", "r1", "created", succeeded, 1)
		}},

		{name: "I4: unreachable counts as success", want: []string{"I2", "I4"}, do: func(w *world) {
			w.create(1, "u1", "red")
			w.run(run{id: "r1", uid: "u1", value: "red", begin: 1.5, end: 2, ended: `,"rc":4,"unreachable":1,"status":"failed"`, code: 4})
			w.conclude(2.5, "u1", "r1", "created", succeeded, 1)
		}},
		{name: "I4: forged statistics count", want: []string{"I2", "I4"}, do: func(w *world) {
			w.create(1, "u1", "red")
			w.run(run{id: "r1", uid: "u1", value: "red", begin: 1.5, end: 2, ended: `,"rc":0,"status":"successful","stats":false`})
			w.conclude(2.5, "u1", "r1", "created", succeeded, 1)
		}},
		{name: "I4: a killed run counts as success", want: []string{"I2", "I4"}, do: func(w *world) {
			w.create(1, "u1", "red")
			w.run(run{id: "r1", uid: "u1", value: "red", begin: 1.5, end: 2, killed: true, unledgered: true})
			w.conclude(2.5, "u1", "r1", "created", succeeded, 1)
		}},
		{name: "I4: a success without a run", want: []string{"I4"}, do: func(w *world) {
			oneRun(w)
			w.conclude(3, "u1", "r9", "period", succeeded, 1)
		}},
		{name: "I4: a success is recorded as failed", want: []string{"I4"}, do: func(w *world) {
			w.create(1, "u1", "red")
			w.run(run{id: "r1", uid: "u1", value: "red", begin: 1.5, end: 2})
			w.conclude(2.5, "u1", "r1", "created", failed, 1)
		}},

		{name: "I5: released without a finalizer run", want: []string{"I5"}, do: func(w *world) {
			oneRun(w)
			w.delete(3, "u1")
			w.release(3.5, "u1")
		}},
		{name: "I5: released after a finalizer run that failed", want: []string{"I5"}, do: func(w *world) {
			oneRun(w)
			w.delete(3, "u1")
			w.run(run{id: "r2", uid: "u1", value: "red", generation: 2, deleting: true, begin: 3.5, end: 4, ended: failing, code: 2})
			w.conclude(4.2, "u1", "r2", "deleted", failed, 2)
			w.release(4.5, "u1")
		}},
		{name: "I5: released after a run of the living object", want: []string{"I5"}, do: func(w *world) {
			oneRun(w)
			w.delete(3, "u1")
			w.run(run{id: "r2", uid: "u1", value: "red", generation: 2, begin: 3.5, end: 4})
			w.conclude(4.2, "u1", "r2", "deleted", succeeded, 2)
			w.release(4.5, "u1")
		}},
		{name: "I5: released from a living object", want: []string{"I5"}, do: func(w *world) {
			oneRun(w)
			w.release(3.5, "u1")
		}},
		{name: "I5: run before there is a finalizer", want: []string{"I5"}, do: func(w *world) {
			w.create(1, "u1", "red")
			w.run(run{id: "r1", uid: "u1", value: "red", begin: 1.5, end: 2})
			w.finalizer(2.2, "u1")
			w.conclude(2.5, "u1", "r1", "created", succeeded, 1)
		}},
		{name: "I5: the living's run of an object that is being deleted", want: []string{"I5"}, do: func(w *world) {
			oneRun(w)
			w.delete(3, "u1")
			w.run(run{id: "r2", uid: "u1", value: "red", generation: 2, deleting: true, begin: 3.5, end: 4, ended: failing, code: 2})
			w.conclude(4.2, "u1", "r2", "content", failed, 2)
		}},
		{name: "the client may take the finalizer off", do: func(w *world) {
			oneRun(w)
			w.delete(3, "u1")
			w.write(3.5, "campaign", "patch", "", "u1", func(o map[string]any) { delete(meta(o), "finalizers") })
		}},

		{name: "I7: the sampler has seen a survivor", want: []string{"I7"}, do: func(w *world) {
			oneRun(w)
			w.driver("survivor", 3, `"replica":"a"`, `"pid":55`)
		}},
		{name: "I7: a run lives longer than its operator", want: []string{"I7"}, do: func(w *world) {
			w.create(1, "u1", "red")
			w.run(run{id: "r1", uid: "u1", value: "red", begin: 1.5, end: 19, killed: true, code: -1, more: `,"signal":"SIGKILL"`})
			w.driver("exit", 2, `"replica":"a"`)
		}},
		{name: "I7: a record before the end", want: []string{"I7"}, do: func(w *world) {
			w.create(1, "u1", "red")
			w.run(run{id: "r1", uid: "u1", value: "red", begin: 1.5, end: 3, killed: true, code: -1, more: `,"signal":"SIGKILL"`})
			w.conclude(2.5, "u1", "r1", "created", interrupted, 1)
		}},

		{name: "I8: not at rest", want: []string{"I8"}, do: func(w *world) {
			oneRun(w)
			w.driver("unstable", 60, `"detail":"o-u1"`)
		}},
		{name: "I8: the newest generation is not recorded", want: []string{"I8"}, do: func(w *world) {
			oneRun(w)
			w.update(3, "u1", "blue")
			w.settle(9)
		}},
		{name: "I8: a run is in progress that is not", want: []string{"I8"}, do: func(w *world) {
			oneRun(w)
			w.begin(5, "u1", "r2", "period", 1)
			w.settle(9)
		}},
		{name: "I8: never run", want: []string{"I8"}, do: func(w *world) { w.create(1, "u1", "red"); w.settle(9) }},
		{name: "I8: interrupted and not repeated", want: []string{"I8"}, do: func(w *world) {
			oneRun(w)
			w.conclude(5, "u1", "r2", "period", interrupted, 1)
			w.settle(9)
		}},
		{name: "I9: the dependent is an older spec's", want: []string{"I9"}, do: func(w *world) {
			twoRuns(w)
			w.settle(9)
			w.changeEnd(func(end map[string]any) { owned(end)["data"] = map[string]any{"spec": "red"} })
		}},
		{name: "I9: the end is not that without faults", want: []string{"I9"}, do: func(w *world) {
			twoRuns(w)
			w.settle(9)
			reference := w.end()
			owned(reference)["data"] = map[string]any{"spec": "green"}
			w.file(referenceFile, reference)
		}},
		{name: "the end is that without faults", do: func(w *world) {
			twoRuns(w)
			w.settle(9)
			w.file(referenceFile, w.end())
		}},
		{name: "I10: the dependent is another owner's", want: []string{"I10"}, do: func(w *world) {
			twoRuns(w)
			w.settle(9)
			w.changeEnd(func(end map[string]any) { delete(owned(end)["metadata"].(map[string]any), "ownerReferences") })
		}},

		{name: "a run writes, and reads as it ends", do: func(w *world) {
			oneRun(w)
			w.request(1.6, runnerAgent+"r1", "create", "configmaps", "o-u1", "", 201, nil)
			w.request(2.5, runnerAgent+"r1", "get", "configmaps", "o-u1", "", 200, nil)
		}},
		{name: "I11: a token that is good after the run", want: []string{"I11"}, do: func(w *world) {
			oneRun(w)
			w.request(3.5, runnerAgent+"r1", "get", "configmaps", "o-u1", "", 200, nil)
		}},
		{name: "a write that the wire has held up", do: func(w *world) {
			oneRun(w)
			w.request(3.5, runnerAgent+"r1", "create", "configmaps", "o-u1", "", 201, nil)
			w.line(wireFile, `{"auditID":"a3.500000","sent":1001.9,"replica":"a"}`+"\n")
		}},
		{name: "I11: a token without a run", want: []string{"I11"}, do: func(w *world) {
			oneRun(w)
			w.request(1.6, runnerAgent+"r7", "create", "configmaps", "o-u1", "", 201, nil)
		}},
		{name: "I11: impersonation", want: []string{"I11"}, do: func(w *world) {
			oneRun(w)
			w.request(1.6, runnerAgent+"r1", "get", "configmaps", "o-u1", "", 200, nil, `"impersonatedUser":{"username":"root"}`)
		}},
		{name: "a write under the lease", do: func(w *world) {
			w.leases("a", 0.5)
			oneRun(w)
			w.sent(1.6, "a", "r1")
		}},
		{name: "I11: a write long after the lease", want: []string{"I11"}, do: func(w *world) {
			w.leases("a", 0.5)
			w.create(1, "u1", "red")
			w.run(run{id: "r1", uid: "u1", value: "red", begin: 1.5, end: 20, killed: true, unledgered: true})
			w.sent(15, "a", "r1")
		}},
		{name: "I11: a write under another's lease", want: []string{"I11"}, do: func(w *world) {
			w.leases("a", 0.5)
			w.leases("b", 2)
			w.create(1, "u1", "red")
			w.run(run{id: "r1", uid: "u1", value: "red", begin: 1.5, end: 6, killed: true, unledgered: true})
			w.sent(4, "a", "r1")
		}},
		{name: "I11: a write without a lease", want: []string{"I11"}, do: func(w *world) {
			w.leases("b", 0.5)
			oneRun(w)
			w.sent(1.6, "a", "r1")
		}},

		{name: "a secret in its own object", do: func(w *world) {
			w.write(0.5, "campaign", "create", "", "u1", func(o map[string]any) { o["spec"] = map[string]any{"value": "red", "canary": Canary} })
			oneRun(w)
			w.line("operator-a.log", "task 0, with [masked]\n")
		}},
		{name: "I13: a secret in the log", want: []string{"I13"}, do: func(w *world) { oneRun(w); w.line("operator-a.log", "task 0, with "+Canary+"\n") }},
		{name: "I13: a secret in the ledger, in base64", want: []string{"I13"}, do: func(w *world) {
			oneRun(w)
			w.line("ledger-a.jsonl", `{"event":"note","detail":"dHdlZXR5LzQ3MTEgYW5kK3N5bHZlc3Rlcg=="}`+"\n")
		}},
		{name: "I13: a secret in the status, as in a URL", want: []string{"I13"}, do: func(w *world) {
			oneRun(w)
			w.write(3, operatorAgent, "patch", "status", "u1", func(o map[string]any) { o["status"].(map[string]any)["x"] = "?a=tweety%2F4711+and%2Bsylvester" })
		}},
		{name: "I13: a secret in an Event", want: []string{"I13"}, do: func(w *world) {
			oneRun(w)
			w.settle(9)
			w.changeEnd(func(end map[string]any) { end["events"] = []any{map[string]any{"message": Canary}} })
		}},
		{name: "I14: something is left", want: []string{"I14"}, do: func(w *world) {
			oneRun(w)
			w.driver("leftover", 9, `"detail":".runs/u1"`)
		}},
		{name: "I14: directories are left", want: []string{"I14"}, do: func(w *world) {
			oneRun(w)
			w.delete(3, "u1")
			w.write(3.5, "campaign", "patch", "", "u1", func(o map[string]any) { delete(meta(o), "finalizers") })
			w.keep("u1/r1")
		}},
		{name: "directories of the living", do: func(w *world) { twoRuns(w); w.keep("u1/r1", "u1/r2") }},
		{name: "I14: the directory of a living object is gone", want: []string{"I14"}, do: func(w *world) { twoRuns(w); w.keep("u1/r2") }},
		{name: "I15: the third repetition waits no longer", want: []string{"I15"}, do: func(w *world) {
			w.driver("start", 1, `"replica":"a"`, `"retryMin":"1s"`)
			w.create(1, "u1", "red")
			w.run(run{id: "r1", uid: "u1", value: "red", begin: 1.5, end: 2, ended: failing, code: 2})
			w.conclude(2.2, "u1", "r1", "created", failed, 1)
			w.write(2.3, "campaign", "patch", "status", "u1", func(o map[string]any) { ansible(o)["lastRun"].(map[string]any)["attempts"] = 3 })
			w.run(run{id: "r2", uid: "u1", value: "red", begin: 4, end: 5})
			w.conclude(5.5, "u1", "r2", "retry", succeeded, 1)
		}},
		{name: "a quiet window", do: func(w *world) {
			oneRun(w)
			w.driver("steady-begin", 3)
			w.request(4, operatorAgent+"/leader-election", "update", "leases", "leader", "", 200, nil)
			w.request(5, "campaign", "update", "things", "o-u1", "", 200, nil)
			w.driver("steady-end", 9)
		}},
		{name: "I15: a write in a quiet window", want: []string{"I15"}, do: func(w *world) {
			oneRun(w)
			w.driver("steady-begin", 3)
			w.request(5, operatorAgent, "patch", "things", "o-u1", "status", 200, nil)
			w.driver("steady-end", 9)
		}},
		{name: "I15: a run in a quiet window", want: []string{"I15"}, do: func(w *world) {
			oneRun(w)
			w.driver("steady-begin", 3)
			w.run(run{id: "r2", uid: "u1", value: "red", begin: 5, end: 6})
			w.driver("steady-end", 9)
		}},
		{name: "I15: the same generation is run again", want: []string{"I15"}, do: func(w *world) {
			oneRun(w)
			w.run(run{id: "r2", uid: "u1", value: "red", begin: 5, end: 6})
			w.conclude(6.5, "u1", "r2", "changed", succeeded, 1)
		}},
		{name: "I15: the object's history is forgotten", want: []string{"I15"}, do: func(w *world) {
			oneRun(w)
			w.run(run{id: "r2", uid: "u1", value: "red", begin: 5, end: 6})
			w.conclude(6.5, "u1", "r2", "created", succeeded, 1)
		}},
		{name: "I15: the status is written all the time", want: []string{"I15"}, do: func(w *world) {
			oneRun(w)
			for i := range 20 {
				w.write(3+float64(i)/10, operatorAgent, "patch", "status", "u1", func(map[string]any) {})
			}
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			tt.do(w)
			if got, texts := w.check(); !slices.Equal(got, tt.want) {
				t.Errorf("violated: %v, want %v\n%s", got, tt.want, texts)
			}
		})
	}
}

// The writer of a log may be killed while it writes.
func TestLoad_ATornLastLineIsNotThere(t *testing.T) {
	w := newWorld(t)
	twoRuns(w)
	w.settle(9)
	for _, file := range []string{auditFile, truthFile, "ledger-a.jsonl", clientFile, driverFile, wireFile} {
		w.line(file, `{"event":"end","run":"r1","boot":10`)
	}
	if got, texts := w.check(); len(got) != 0 {
		t.Error(texts)
	}
}

func TestLoad_NotesWhatMakesNoSense(t *testing.T) {
	w := newWorld(t)
	oneRun(w)
	w.line(truthFile, "{\"event\":\"be{\"event\":\"beat\"}\n")
	h, err := Load(w.dir)
	if err != nil || len(h.Notes) != 1 || !strings.Contains(h.Notes[0], "truth.jsonl:12:") || h.Run("r1") == nil {
		t.Errorf("%v, notes %v", err, h.Notes)
	}
}

func TestCopyAudit_GoesOnWhereItStopped(t *testing.T) {
	w := newWorld(t)
	oneRun(w)
	w.request(3, operatorAgent, "get", "things", "o-u1", "", 200, nil)
	w.request(3, runnerAgent+"r1", "get", "configmaps", "o-u1", "", 200, nil)
	w.line(auditFile, `{"objectRef":{"namespace":"other"}}`+"\n"+`{"objectRef":{"namespace":"ns"}`)
	log := w.dir + "/" + auditFile
	var first, second bytes.Buffer
	next, err := CopyAudit(&first, log, 0, "ns")
	if err != nil || strings.Count(first.String(), "\n") != 5 {
		t.Fatalf("%v: %s", err, first.String())
	}
	w.line(auditFile, `,"late":1}`+"\n")
	if _, err := CopyAudit(&second, log, next, "ns"); err != nil || second.String() != `{"objectRef":{"namespace":"ns"},"late":1}`+"\n" {
		t.Errorf("%v: %s", err, second.String())
	}
}

func TestLoad_ReadsTheClientsOperations(t *testing.T) {
	w := newWorld(t)
	w.line(clientFile, `{"op":"create","name":"o-0","value":"A","invoked":1.5,"completed":1.75,"boot":1.8,"time":"2026-01-02T03:00:00Z"}`+"\n")
	h, err := Load(w.dir)
	if err != nil || len(h.Operations) != 1 || h.Operations[0].Completed.Since(h.Operations[0].Invoked).Milliseconds() != 250 {
		t.Errorf("%v, %v: %+v", err, h.Notes, h.Operations)
	}
}
