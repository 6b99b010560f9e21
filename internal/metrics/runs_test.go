package metrics

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestRecorder_ExposesWhatRunsWaitForAndTake(t *testing.T) {
	r, reg := newRecorder(t)
	recordAll(r)
	const want = `
# HELP rolewright_deletion_oldest_seconds Age in seconds of the oldest deletion that waits for its finalizer run and is not paused; 0 if none waits.
# TYPE rolewright_deletion_oldest_seconds gauge
rolewright_deletion_oldest_seconds{group="apps.example.com",kind="Widget",version="v1"} 2
# HELP rolewright_disk_free_bytes Free space of the file system of --runner-root.
# TYPE rolewright_disk_free_bytes gauge
rolewright_disk_free_bytes 30
# HELP rolewright_disk_size_bytes Size of the file system of --runner-root.
# TYPE rolewright_disk_size_bytes gauge
rolewright_disk_size_bytes 100
# HELP rolewright_pod_wait_oldest_seconds The longest time in seconds that a run as a Job has been waiting for its Pod to start, or to report again (executor job); 0 if none waits.
# TYPE rolewright_pod_wait_oldest_seconds gauge
rolewright_pod_wait_oldest_seconds{group="apps.example.com",kind="Widget",version="v1"} 3
# HELP rolewright_queue_oldest_seconds The longest time in seconds that an object has been waiting for a reconcile or a run that is due; 0 if none waits.
# TYPE rolewright_queue_oldest_seconds gauge
rolewright_queue_oldest_seconds{group="apps.example.com",kind="Widget",version="v1"} 1
# HELP rolewright_rollout_stopped 1 while the rollout of a change is stopped because rollout.stopOnFailures objects have failed with it, else 0.
# TYPE rolewright_rollout_stopped gauge
rolewright_rollout_stopped{group="apps.example.com",kind="Widget",version="v1"} 0
# HELP rolewright_run_oldest_seconds Age in seconds of the oldest run in progress; 0 if there is none.
# TYPE rolewright_run_oldest_seconds gauge
rolewright_run_oldest_seconds{group="apps.example.com",kind="Widget",version="v1"} 0
# HELP rolewright_runs_lost_total Runs of an earlier process whose end was not seen. They are retried.
# TYPE rolewright_runs_lost_total counter
rolewright_runs_lost_total{group="apps.example.com",kind="Widget",version="v1"} 1
# HELP rolewright_runs_waiting Runs that are due and wait for a place, by how urgent they are: deletion, manual, change, effect, trigger, content, retry, period.
# TYPE rolewright_runs_waiting gauge
rolewright_runs_waiting{class="period",group="apps.example.com",kind="Widget",version="v1"} 4
# HELP rolewright_task_failures_total Tasks that made a run fail, by file and line of the task; other for those beyond the first 200.
# TYPE rolewright_task_failures_total counter
rolewright_task_failures_total{group="apps.example.com",kind="Widget",task="/roles/w/tasks/main.yml:3",version="v1"} 1
rolewright_task_failures_total{group="apps.example.com",kind="Widget",task="unknown",version="v1"} 1
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want),
		"rolewright_deletion_oldest_seconds", "rolewright_disk_free_bytes", "rolewright_disk_size_bytes",
		"rolewright_pod_wait_oldest_seconds", "rolewright_queue_oldest_seconds", "rolewright_run_oldest_seconds", "rolewright_rollout_stopped", "rolewright_runs_waiting", "rolewright_runs_lost_total", "rolewright_task_failures_total"); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"rolewright_run_wait_seconds", "rolewright_run_memory_bytes"} {
		if series, err := testutil.GatherAndCount(reg, name); err != nil || series != 1 {
			t.Errorf("%s has %d series (%v), want 1", name, series, err)
		}
	}
}

func TestTaskFailed_HasABoundedNumberOfSeries(t *testing.T) {
	r, _ := newRecorder(t)
	for i := range 3 * maxPlaces {
		r.TaskFailed(widget, fmt.Sprintf("/tmp/%d/main.yml:1", i))
	}
	r.TaskFailed(widget, "/tmp/0/main.yml:1") // already known
	if n := testutil.CollectAndCount(r.failures); n != maxPlaces+1 {
		t.Errorf("%d series, want %d and one for all others", n, maxPlaces)
	}
	other := r.failures.WithLabelValues(widget.Group, widget.Version, widget.Kind, "other")
	if n := testutil.ToFloat64(other); n != 2*maxPlaces {
		t.Errorf("others = %v, want %d", n, 2*maxPlaces)
	}
}

func TestWatchAges_LastsUntilItIsStopped(t *testing.T) {
	r, _ := newRecorder(t)
	gadget := schema.GroupVersionKind{Version: "v1", Kind: "Gadget"}
	series := func() int { return testutil.CollectAndCount(&r.scraped, "rolewright_queue_oldest_seconds") }
	first := r.WatchAges(widget, func() Ages {
		return Ages{Queue: time.Hour, Drifted: 2, Failed: 1, Waiting: map[string]int{"change": 1, "period": 1}}
	})
	second := r.WatchAges(widget, func() Ages { return Ages{Stopped: true, Drifted: 1, Failed: 1, Waiting: map[string]int{"change": 2}} }) // another watch of the kind
	defer r.WatchAges(gadget, func() Ages { return Ages{Queue: -time.Second} })()
	if n := series(); n != 2 {
		t.Errorf("%d series of two kinds", n)
	}
	const labels = `group="apps.example.com",kind="Widget",version="v1"`
	if err := testutil.CollectAndCompare(&r.scraped, strings.NewReader(`# HELP rolewright_drifted Objects that have drifted: their last run was a check, and would have changed something.
# TYPE rolewright_drifted gauge
rolewright_drifted{group="",kind="Gadget",version="v1"} 0
rolewright_drifted{`+labels+`} 3
# HELP rolewright_objects_failed Objects whose last run has failed: those that are run again, and stalled ones.
# TYPE rolewright_objects_failed gauge
rolewright_objects_failed{group="",kind="Gadget",version="v1"} 0
rolewright_objects_failed{`+labels+`} 2
# HELP rolewright_runs_waiting Runs that are due and wait for a place, by how urgent they are: deletion, manual, change, effect, trigger, content, retry, period.
# TYPE rolewright_runs_waiting gauge
rolewright_runs_waiting{class="change",`+labels+`} 3
rolewright_runs_waiting{class="period",`+labels+`} 1
`), "rolewright_drifted", "rolewright_objects_failed", "rolewright_runs_waiting"); err != nil {
		t.Error(err)
	}
	first()
	if n := series(); n != 2 {
		t.Errorf("%d series after the end of one watch of two, want 2", n)
	}
	second()
	if n := series(); n != 1 {
		t.Errorf("%d series after the end of one kind of two, want 1", n)
	}
}

func TestWatchDisk_HasNoSeriesWithoutAFigure(t *testing.T) {
	r, _ := newRecorder(t)
	r.WatchDisk(func() (Disk, error) { return Disk{}, errors.New("no such directory") })
	if n := testutil.CollectAndCount(&r.scraped, "rolewright_disk_free_bytes", "rolewright_disk_size_bytes"); n != 0 {
		t.Errorf("%d series of a disk that cannot be looked at, want none", n)
	}
}
