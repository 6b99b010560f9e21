package runner

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rolewright/rolewright/runner/supervise"
)

// A playbook that puts links, pipes, devices and closed directories where files
// are expected blocks nothing and harms nothing outside; and what is not there to
// prove a success proves none.
func TestRun_WhosePlaybookPlantsThings(t *testing.T) {
	r := ansible(t)
	for name, tt := range map[string]struct {
		// script runs in the private data directory; $A is ansible-runner's, $OUT
		// a directory outside.
		script  string
		succeed bool
	}{
		"latest leads outside":     {`ln -s "$OUT" artifacts/latest`, true},
		"events are a link":        {`mv $A/job_events $A/moved; ln -s "$OUT" $A/job_events`, false},
		"events are a pipe":        {`rm -r $A/job_events; mkfifo $A/job_events`, false},
		"events are a device":      {`rm -r $A/job_events; mknod $A/job_events c 1 5`, false},
		"output is a pipe":         {`rm $A/stdout; mkfifo $A/stdout`, true},
		"output is a device":       {`rm $A/stdout; mknod $A/stdout c 1 5`, true},
		"output is a link":         {`rm $A/stdout; ln -s "$OUT/precious" $A/stdout`, true},
		"status is a pipe":         {`mkfifo $A/status; sleep 2`, true},
		"status is a device":       {`mknod $A/status c 1 5; sleep 2`, true},
		"status is a link":         {`ln -s "$OUT/precious" $A/status; sleep 2`, true},
		"status is a directory":    {`mkdir -p $A/status/x; sleep 2`, true},
		"rc is a pipe":             {`mkfifo $A/rc; sleep 2`, true},
		"an event is a pipe":       {`mkfifo $A/job_events/1-x.json $A/job_events/99-x.json`, true},
		"an event is a link":       {`ln -s "$OUT/precious" $A/job_events/99-x.json`, true},
		"an event is a device":     {`mknod $A/job_events/99-x.json c 1 5`, true},
		"the end is a link":        {`ln -s "$OUT/precious" end.json; ln -sf "$OUT/precious" .end.json.new`, true},
		"the end is a hard link":   {`ln "$OUT/precious" end.json; ln -f "$OUT/precious" .end.json.new`, true},
		"the end is a pipe":        {`mkfifo end.json; rm .end.json.new; mkfifo .end.json.new`, true},
		"the end is a directory":   {`mkdir -p end.json/x; rm .end.json.new; mkdir -p .end.json.new/x`, true},
		"a socket":                 {`python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("s")'`, true},
		"artifacts lead outside":   {`mv artifacts hidden; ln -s "$OUT" artifacts`, false},
		"directories are closed":   {`mkdir -p $A/closed/in; chmod 000 $A/closed`, true},
		"the command is a link":    {`rm $A/command; ln -s "$OUT/precious" $A/command`, true},
		"the variables are linked": {`rm -r env; ln -s "$OUT" env; ln -sf "$OUT/precious" kubeconfig`, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			outside := t.TempDir()
			precious := write(t, filepath.Join(outside, "precious"), "precious", 0o600)
			before := tree(t, outside)
			req := request(t, "script.yml")
			script := fmt.Sprintf("A=artifacts/%s; OUT=%q; %s", req.ID, outside, tt.script)
			req.ExtraVars = fmt.Appendf(nil, `{"dir": %q, "script": %q}`, req.Dir, script)
			res, err := r.Run(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			if v := res.Verdict(); v.Success != tt.succeed {
				t.Errorf("verdict = %+v, want success: %v\n%+v", v, tt.succeed, res)
			}
			if rec, err := supervise.ReadRecord(filepath.Join(req.Dir, endRecord)); err != nil || time.Since(rec.Finished) > time.Hour {
				t.Errorf("the end is %+v, %v", rec, err)
			}
			if _, err := r.Recover(t.Context(), req.Dir, req.ID, nil); err != nil {
				t.Errorf("recover: %v", err)
			}
			if err := Strip(req.Dir, "kubeconfig"); err != nil {
				t.Errorf("strip: %v", err)
			}
			_ = Usage(req.Dir)
			if _, _, err := Runs(filepath.Dir(req.Dir)); err != nil {
				t.Errorf("list: %v", err)
			}
			if err := Remove(req.Dir); err != nil {
				t.Errorf("remove: %v", err)
			}
			if _, err := os.Lstat(req.Dir); !os.IsNotExist(err) {
				t.Errorf("left: %v", err)
			}
			if data, err := os.ReadFile(precious); err != nil || string(data) != "precious" {
				t.Errorf("outside = %q, %v", data, err)
			}
			// ansible-runner itself follows a link in the place of its directory,
			// and adds events; of what was there nothing changes.
			if after := tree(t, outside); len(after) != len(before) && name != "events are a link" {
				t.Errorf("outside: %v", after)
			}
		})
	}
}
