package runner

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rolewright/rolewright/runner/rundir"
	"github.com/rolewright/rolewright/runner/supervise"
	"github.com/rolewright/rolewright/test/must"
)

// A playbook may put links, pipes, devices and closed directories where files are expected. That blocks nothing and harms
// nothing outside, and if the proof of a success is missing, the run is no success.
func TestRun_WhosePlaybookPlantsThings(t *testing.T) {
	for name, tt := range map[string]struct {
		// script runs in the private data directory; $A is ansible-runner's directory, $OUT a directory outside.
		script string
		// If real is false, a shell script takes the place of ansible-runner, and does not replace what script has planted.
		real, succeed bool
	}{
		"events are a link":      {`mv $A/job_events $A/moved; ln -s "$OUT" $A/job_events`, true, false},
		"events are a pipe":      {`rm -r $A/job_events; mkfifo $A/job_events`, false, false},
		"events are a device":    {`rm -r $A/job_events; mknod $A/job_events c 1 5`, false, false},
		"artifacts lead outside": {`mv artifacts hidden; ln -s "$OUT" artifacts`, true, false},
		"files are pipes": {`for f in $A/stdout .end.json.new; do rm $f; mkfifo $f; done
			mkfifo end.json $A/job_events/1-x.json $A/job_events/99-x.json`, true, true},
		"files are devices": {`rm $A/stdout; for f in stdout job_events/99-x.json; do mknod $A/$f c 1 5; done`, false, true},
		"files are links": {`for f in artifacts/latest env; do rm -rf $f; ln -s "$OUT" $f; done
			for f in $A/stdout $A/job_events/99-x.json $A/command end.json .end.json.new kubeconfig; do ln -sf "$OUT/precious" $f; done`, true, true},
		"status is a pipe":   {`mkfifo $A/status; sleep 2`, true, true},
		"status is a device": {`mknod $A/status c 1 5`, false, false},
		"status is a link":   {`ln -s "$OUT/precious" $A/status`, false, false},
		"rc is a pipe":       {`mkfifo $A/rc`, false, true},
		"files are hard links, and a socket": {`ln "$OUT/precious" end.json; ln -f "$OUT/precious" .end.json.new
			python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("s")'`, false, true},
		"files are directories": {`rm .end.json.new; mkdir -p $A/status/x end.json/x .end.json.new/x $A/closed/in; chmod 000 $A/closed`, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			outside := t.TempDir()
			precious := write(t, filepath.Join(outside, "precious"), "precious", 0o600)
			before := tree(t, outside)
			req := request(t, "script.yml")
			script := fmt.Sprintf("A=artifacts/%s; OUT=%q; %s", req.ID, outside, tt.script)
			var r *Runner
			if tt.real {
				r = ansible(t)
				req.ExtraVars = fmt.Appendf(nil, `{"dir": %q, "script": %q}`, req.Dir, script)
			} else {
				r = stub(t, req, "event 1 playbook_on_start; touch stdout; cd ../..\n"+script+
					"\ncd $A; event 2 playbook_on_stats \"$STATS\"; [ -e status ] || printf successful >status\n")
			}
			res := must.Get(r.Run(t.Context(), req))(t)
			if v := res.Verdict(); v.Success != tt.succeed {
				t.Errorf("verdict = %+v, want success: %v\n%+v", v, tt.succeed, res)
			}
			if rec, err := supervise.ReadExit(filepath.Join(req.Dir, endRecord)); err != nil || time.Since(rec.Finished) > time.Hour {
				t.Errorf("the end is %+v, %v", rec, err)
			}
			if _, err := r.Recover(t.Context(), req.Dir, req.ID, false, nil); err != nil {
				t.Errorf("recover: %v", err)
			}
			if err := rundir.Strip(req.Dir, "kubeconfig"); err != nil {
				t.Errorf("strip: %v", err)
			}
			_ = rundir.Usage(req.Dir)
			if _, _, err := rundir.Runs(filepath.Dir(req.Dir)); err != nil {
				t.Errorf("list: %v", err)
			}
			if err := rundir.Remove(req.Dir); err != nil {
				t.Errorf("remove: %v", err)
			}
			if _, err := os.Lstat(req.Dir); !os.IsNotExist(err) {
				t.Errorf("left: %v", err)
			}
			if data, err := os.ReadFile(precious); err != nil || string(data) != "precious" {
				t.Errorf("outside = %q, %v", data, err)
			}
			// ansible-runner itself follows a link in the place of its directory and adds events there, but changes no
			// existing file.
			if after := tree(t, outside); len(after) != len(before) && name != "events are a link" {
				t.Errorf("outside: %v", after)
			}
		})
	}
}
