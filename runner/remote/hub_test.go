package remote

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/runner/jobevent"
	"github.com/rolewright/rolewright/test/must"
)

// unknown says of every token that it belongs to no run.
func unknown([sha256.Size]byte) Place { return Nowhere }

// What a container sends is only written where it belongs.
func TestHub_RefusesWhatIsNoFileOfARun(t *testing.T) {
	t.Parallel()
	req := newRequest(t, "")
	req.Files, req.MaxBytes = nil, 4000
	must.Do(t, runner.CreateMirror(req))
	hub := NewHub(unknown)
	s := must.Get(hub.Admit(req, ""))(t)
	t.Cleanup(s.Close)
	post := func(at, pod string, header tar.Header, size int) int {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		if header.Name != "" {
			header.Size = int64(size)
			must.Do(t, w.WriteHeader(&header))
			if _, err := w.Write(make([]byte, size)); err != nil {
				t.Fatal(err)
			}
		}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, at+"?pod="+pod+"&epoch="+s.epoch, &b)
		r.Header.Set("Authorization", "Bearer "+req.JobRun.Token)
		answer := httptest.NewRecorder()
		hub.ServeHTTP(answer, r)
		return answer.Code
	}
	const event = "job_events/1-a.json"
	file := func(name string) tar.Header { return tar.Header{Name: name, Typeflag: tar.TypeReg} }
	if code := post(filesPath, "this", file(event), 1); code != http.StatusConflict {
		t.Errorf("files of a run that has no leave are answered %d, want %d", code, http.StatusConflict)
	}
	if code := post(startPath, "this", tar.Header{}, 0); code != http.StatusOK {
		t.Fatalf("the start is answered %d", code)
	}
	for _, name := range []string{
		"ticket.json", "../x", "/etc/x", "job_events/../../x", "job_events/1-../../../x.json", "job_events/0-a.json", "job_events/1-a.json/x", "job_events/81941543-6c4c-4250-8097-bd1e8ada8140-partial.json", "env/envvars", "kubeconfig", "",
	} {
		if name == "" {
			name = "job_events"
		}
		if code := post(filesPath, "this", file(name), 1); code != http.StatusForbidden {
			t.Errorf("file %q is answered %d, want %d", name, code, http.StatusForbidden)
		}
	}
	for code, header := range map[int]tar.Header{
		http.StatusForbidden: {Name: event, Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"},
		http.StatusOK:        file(event),
	} {
		size := 1
		if header.Typeflag == tar.TypeSymlink {
			size = 0
		}
		if got := post(filesPath, "this", header, size); got != code {
			t.Errorf("%s of type %c is answered %d, want %d", header.Name, header.Typeflag, got, code)
		}
	}
	if code := post(filesPath, "that", file(event), 1); code != http.StatusConflict {
		t.Errorf("another Pod is answered %d, want %d", code, http.StatusConflict)
	}
	if code := post(filesPath, "this", file("stdout"), 4000); code != http.StatusForbidden {
		t.Errorf("more than a run may write is answered %d, want %d", code, http.StatusForbidden)
	}
	var cut bytes.Buffer
	must.Do(t, tar.NewWriter(&cut).WriteHeader(&tar.Header{Name: "job_events/2-a.json", Typeflag: tar.TypeReg, Size: 100}))
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, filesPath+"?pod=this&epoch="+s.epoch, &cut)
	r.Header.Set("Authorization", "Bearer "+req.JobRun.Token)
	hub.ServeHTTP(httptest.NewRecorder(), r)
	left, err := os.ReadDir(filepath.Join(req.Dir, "artifacts", req.ID, "job_events"))
	if err != nil || len(left) != 1 {
		t.Errorf("%q are there, want the one event, and nothing of the one that was cut short: %v", left, err)
	}
	again := must.Get(NewHub(unknown).Admit(req, "this"))(t)
	t.Cleanup(again.Close)
	if want := int64(blockBytes + fileBytes); again.bytes != want {
		t.Errorf("the next operator counts %d bytes, want the %d that are there", again.bytes, want)
	}
	if _, err := os.Stat(filepath.Join(req.Dir, runner.OutcomeFile)); !os.IsNotExist(err) {
		t.Errorf("there is an outcome: %v", err)
	}
}

// A Pod that another operator allowed to start the run may go on, even if this operator has not heard from it yet.
func TestHub_TakesTheFirstPodOfARunThatIsAdopted(t *testing.T) {
	t.Parallel()
	req := newRequest(t, "")
	req.JobRun.Adopted, req.Files = true, nil
	must.Do(t, runner.CreateMirror(req))
	hub := NewHub(unknown)
	s := must.Get(hub.Admit(req, ""))(t)
	t.Cleanup(s.Close)
	for _, tt := range []struct {
		query string
		want  int
	}{
		{"?pod=this&epoch=", http.StatusConflict}, // it was not allowed to start
		{"?pod=this&epoch=of-another-operator", http.StatusOK},
		{"?pod=that&epoch=of-another-operator", http.StatusConflict},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, filesPath+tt.query, nil)
		r.Header.Set("Authorization", "Bearer "+req.JobRun.Token)
		answer := httptest.NewRecorder()
		if hub.ServeHTTP(answer, r); answer.Code != tt.want {
			t.Errorf("%s is answered %d, want %d", tt.query, answer.Code, tt.want)
		}
	}
	select {
	case <-s.Started:
	default:
		t.Error("the run counts as one that has not begun")
	}
}

// If an earlier operator has received events of the run, its Pod has begun. Another Pod of the Job, as a queue makes it when
// it resumes a Job, must not start the run once more: the events of both would be mixed.
func TestHub_StartsAnAdoptedRunOnce(t *testing.T) {
	t.Parallel()
	req := newRequest(t, "")
	req.JobRun.Adopted, req.Files = true, nil
	must.Do(t, runner.CreateMirror(req))
	must.Do(t, os.WriteFile(filepath.Join(req.Dir, "artifacts", req.ID, "job_events", "1-a.json"), []byte("{}"), 0o600))
	hub := NewHub(unknown)
	t.Cleanup(must.Get(hub.Admit(req, ""))(t).Close)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, startPath+"?pod=b", nil)
	r.Header.Set("Authorization", "Bearer "+req.JobRun.Token)
	answer := httptest.NewRecorder()
	hub.ServeHTTP(answer, r)
	must.Be(t, "answer", http.StatusConflict, answer.Code)
}

// There may be thousands of runs in Pods, but a user may have only about a hundred inotify instances.
func TestMirrored_TakesNoInotifyInstance(t *testing.T) {
	hub := NewHub(unknown)
	over, ended, came := make(chan struct{}), make(chan struct{}), make(chan string)
	const runs = 3
	for range runs {
		req := newRequest(t, "")
		req.Files, req.OnEvent = nil, func(e jobevent.Event) { came <- e.UUID }
		must.Do(t, runner.CreateMirror(req))
		s := must.Get(hub.Admit(req, "this"))(t)
		t.Cleanup(s.Close)
		send := func(n int) {
			b := newBatch()
			must.Do(t, b.add(fmt.Sprintf("%s%d-a.json", eventsDir, n), fmt.Appendf(nil, `{"event":"verbose","uuid":"%d"}`, n)))
			must.Do(t, b.files.Close())
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, filesPath+"?pod=this&epoch="+s.epoch, &b.buffer)
			r.Header.Set("Authorization", "Bearer "+req.JobRun.Token)
			hub.ServeHTTP(httptest.NewRecorder(), r)
		}
		<-s.Told // the empty text at the start
		send(1)
		must.Be(t, "told of what was received", 1, len(s.Told))
		go func() {
			_, _ = runner.Mirrored(t.Context(), req, s.Told, over) // it has no outcome
			ended <- struct{}{}
		}()
		must.Be(t, "came", "1", <-came)
		send(2)
		must.Be(t, "came", "2", <-came)
	}
	for _, open := range must.Get(os.ReadDir("/proc/self/fd"))(t) {
		if of, _ := os.Readlink("/proc/self/fd/" + open.Name()); strings.Contains(of, "inotify") {
			t.Errorf("there is %s", of)
		}
	}
	close(over)
	for range runs {
		<-ended
	}
}

// A sparse entry with one byte can read as a file of a megabyte.
func TestIsSparse(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	// The writer makes no sparse entries, so the names of the records are changed afterwards.
	must.Do(t, w.WriteHeader(&tar.Header{Name: "stdout", Typeflag: tar.TypeReg, Size: 1, PAXRecords: map[string]string{
		"FOR.sparse.size": "1000000", "FOR.sparse.numblocks": "1", "FOR.sparse.map": "0,1",
	}}))
	must.Get(w.Write([]byte("x")))(t)
	must.Do(t, w.Close())
	header := must.Get(tar.NewReader(bytes.NewReader(bytes.ReplaceAll(b.Bytes(), []byte("FOR.sparse"), []byte("GNU.sparse")))).Next())(t)
	if header.Typeflag != tar.TypeReg || header.Size != 1_000_000 || !isSparse(header) {
		t.Errorf("type %c, %d bytes, sparse: %t", header.Typeflag, header.Size, isSparse(header))
	}
}

// A client without a run is refused, and its connection is closed. After herePath, the connection stays open.
func TestHub_ClosesWhatHasNoRun(t *testing.T) {
	t.Parallel()
	for path, connection := range map[string]string{herePath: "", startPath: "close", filesPath: "close"} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, http.NoBody)
		w := httptest.NewRecorder()
		NewHub(unknown).ServeHTTP(w, r)
		if w.Code != http.StatusUnauthorized || w.Header().Get("Connection") != connection {
			t.Errorf("%s is answered %d, %v", path, w.Code, w.Header())
		}
	}
}

// A file that is sent again needs space in addition to its earlier version, even if an earlier process has received that.
func TestHub_CountsWhatIsReplaced(t *testing.T) {
	t.Parallel()
	req := newRequest(t, "")
	req.Files, req.MaxBytes = nil, 10<<10
	must.Do(t, runner.CreateMirror(req))
	for _, size := range []int{8 << 10, 8 << 10, 12 << 10} {
		s := must.Get(NewHub(unknown).Admit(req, "this"))(t)
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		must.Do(t, w.WriteHeader(&tar.Header{Name: "stdout", Typeflag: tar.TypeReg, Size: int64(size)}))
		b.Write(make([]byte, size))
		if err := s.receive(&b); errors.Is(err, errTooMuch) != (size > 8<<10) {
			t.Errorf("%d bytes beside %d of twice %d: %v", size, s.bytes, req.MaxBytes, err)
		}
		s.Close()
	}
}
