package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Outcomes of a play. The empty one is a success.
const (
	outcomeFailed      = "failed"      // a task fails
	outcomeUnreachable = "unreachable" // the host is unreachable
	outcomeNoHosts     = "no-hosts"    // no host matches, and the exit code is 0
	outcomeNoStats     = "no-stats"    // the last events are missing and the exit code is 0, as when the disk is full
	outcomeNoRC        = "no-rc"       // ansible-runner crashes: neither rc nor status
	outcomeDied        = "died"        // SIGKILL
)

// behaviour is the field fake in an object's spec: what a run for the object
// does. The zero value succeeds at once with one task.
type behaviour struct {
	// Sleep is how long the run takes, as a duration.
	Sleep string `json:"sleep"`
	// Tasks is the number of tasks, at least one.
	Tasks   int    `json:"tasks"`
	Outcome string `json:"outcome"`
	// FailFirst is how many runs with a value fail before one has Outcome.
	FailFirst int `json:"failFirst"`
	// RequeueOnce is the requeue_after of the first run with a value.
	RequeueOnce string `json:"requeueOnce"`
	// Daemons is how many processes leave the session and go on.
	Daemons    int  `json:"daemons"`
	IgnoreTerm bool `json:"ignoreTerm"`
	// Forge adds the stats of a successful play under another play's ID, as data of an object can
	// cause them to be printed.
	Forge bool `json:"forge"`
	// Steal makes the run pass its token on to the next run, which tries to use it.
	Steal bool `json:"steal"`
	// Finalizer is the behaviour of finalizer runs.
	Finalizer *behaviour `json:"finalizer"`

	// requeue is the requeue_after of this run.
	requeue string
}

func (b behaviour) sleep() time.Duration {
	d, _ := time.ParseDuration(b.Sleep) // an invalid duration counts as zero
	return d
}

// object is what a run knows about the object that it is made for, from the whole
// object among its extra vars.
type object struct {
	Metadata struct {
		Name              string `json:"name"`
		Namespace         string `json:"namespace"`
		UID               string `json:"uid"`
		Generation        int64  `json:"generation"`
		DeletionTimestamp string `json:"deletionTimestamp"`
	} `json:"metadata"`
	Spec struct {
		Value string `json:"value"`
		// Canary is a secret that the run repeats wherever it can.
		Canary string `json:"canary"`

		Fake behaviour `json:"fake"`
	} `json:"spec"`
}

func (o object) deleting() bool { return o.Metadata.DeletionTimestamp != "" }

// blab returns the object's secret in the forms in which roles print secrets.
func (o object) blab() string {
	secret := o.Spec.Canary
	if secret == "" {
		return ""
	}
	return fmt.Sprintf(", with %s and %s and %s", secret, base64.StdEncoding.EncodeToString([]byte(secret)), url.QueryEscape(secret))
}

func (o object) behaviour() behaviour {
	if !o.deleting() {
		return o.Spec.Fake
	}
	if o.Spec.Fake.Finalizer != nil {
		return *o.Spec.Fake.Finalizer
	}
	return behaviour{}
}

// readObject finds the whole object among the extra vars: it is the variable with
// metadata.
func readObject(path string) (object, error) {
	var o object
	data, err := os.ReadFile(path)
	if err != nil {
		return o, err
	}
	var vars map[string]any
	if err := json.Unmarshal(data, &vars); err != nil {
		return o, fmt.Errorf("%s: %w", path, err)
	}
	for _, value := range vars {
		whole, _ := value.(map[string]any)
		if meta, _ := whole["metadata"].(map[string]any); meta["uid"] == nil {
			continue
		}
		plain, err := json.Marshal(unmarked(value))
		if err != nil {
			return o, err
		}
		return o, json.Unmarshal(plain, &o)
	}
	return o, nil // the bench's objects have no such field
}

// readWhole reads the whole object from the file that a command gets.
func readWhole(path string) (o object, err error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return o, err
	}
	return o, json.Unmarshal(data, &o)
}

// unmarked returns a value without the marks of unsafe strings.
func unmarked(value any) any {
	switch v := value.(type) {
	case map[string]any:
		if inner, ok := v["__ansible_unsafe"]; ok && len(v) == 1 {
			return inner
		}
		for key := range v {
			v[key] = unmarked(v[key])
		}
	case []any:
		for i := range v {
			v[i] = unmarked(v[i])
		}
	}
	return value
}

// truth is a line of the truth log: what a run was told, and what it did.
type truth struct {
	Event      string  `json:"event"` // begin, beat or end; a run that was killed has no end
	Run        string  `json:"run"`
	UID        string  `json:"uid"`
	Namespace  string  `json:"namespace"`
	Name       string  `json:"name"`
	Generation int64   `json:"generation"`
	Deleting   bool    `json:"deleting"`
	Value      string  `json:"value"`
	PID        int     `json:"pid"`
	Forked     bool    `json:"forked"` // by a fork server
	Boot       float64 `json:"boot"`   // seconds since the machine's start
	Time       string  `json:"time"`
	// The remaining fields are for the end: what the artifacts say, and what was intended.
	Code         int    `json:"rc"`
	Outcome      string `json:"verdict,omitempty"`
	Status       string `json:"status,omitempty"`
	Stats        bool   `json:"stats"`
	Failures     int    `json:"failures,omitempty"`
	Unreachable  int    `json:"unreachable,omitempty"`
	Processed    int    `json:"processed,omitempty"`
	NoHosts      bool   `json:"noHosts,omitempty"`
	RequeueAfter string `json:"requeueAfter,omitempty"`
}

func (t *truth) fill(p *play) {
	m := p.object.Metadata
	t.Run, t.UID, t.Namespace, t.Name, t.Generation = p.ident, m.UID, m.Namespace, m.Name, m.Generation
	t.Deleting, t.Value, t.PID = p.object.deleting(), p.object.Spec.Value, os.Getpid()
	head, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", os.Getppid())) // a parent that has ended is no fork server
	t.Forked = bytes.HasPrefix(head, []byte("rolewright-run"))
	t.Boot, t.Time = bootTime(), time.Now().UTC().Format(time.RFC3339Nano)
}

// bootTime returns the time of a clock that all processes share and that is never set.
func bootTime() float64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0
	}
	return float64(ts.Nano()) / 1e9
}
