package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// doctor runs the command.
func doctor(t *testing.T, args ...string) (stdout string, err error) {
	t.Helper()
	var out bytes.Buffer
	cmd := newDoctorCommand()
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	err = cmd.ExecuteContext(t.Context())
	return out.String(), err
}

// wrappedAnsible puts a shell script before ansible-playbook in the PATH.
func wrappedAnsible(t *testing.T) {
	t.Helper()
	requireAnsible(t)
	playbook, err := exec.LookPath("ansible-playbook")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "ansible-playbook"), []byte("#!/bin/sh\nexec "+playbook+" \"$@\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

func TestDoctor_TellsWhatRunsWouldFind(t *testing.T) {
	const ansible = `ok +Ansible +ansible-core 2\.\d+\.\S+, ansible-runner \d\S+, Python 3\.\S+( \(/\S+\))?\n`
	const why = `executor +runs start Python anew: no warm interpreter: \S+/ansible-playbook is no Python script as installers write them\n$`
	for name, tt := range map[string]struct {
		change func(t *testing.T)
		args   []string
		want   string
		failed bool
	}{
		"all is well":                   {args: []string{"--executor=warm"}, want: `^` + ansible + `ok +executor +runs can be forked\n$`},
		"nothing is to be forked":       {args: []string{"--executor=runner"}, want: `^` + ansible + `ok +executor +ansible-runner is started for each run\n$`},
		"no forks, and none needed":     {change: wrappedAnsible, want: `^` + ansible + `note +` + why},
		"no forks, and they are needed": {change: wrappedAnsible, args: []string{"--executor=warm"}, want: `^` + ansible + `failed +` + why, failed: true},
		"no Ansible": {change: func(t *testing.T) { t.Helper(); t.Setenv("PATH", t.TempDir()) }, failed: true,
			want: `^failed +Ansible +ansible-runner is unavailable: (.|\n)*not found in \$PATH(.|\n)*; install ansible-core and ansible-runner, or see --ansible-runner\nnote +executor +runs start Python anew: .*not found in \$PATH\n$`},
	} {
		t.Run(name, func(t *testing.T) {
			requireAnsible(t)
			if tt.change != nil {
				tt.change(t)
			}
			got, err := doctor(t, tt.args...)
			if errors.Is(err, errInvalid) != tt.failed || err != nil && !tt.failed {
				t.Errorf("error = %v", err)
			}
			if !regexp.MustCompile(tt.want).MatchString(got) {
				t.Errorf("it prints\n%s\nwant\n%s", got, tt.want)
			}
		})
	}
}

func TestDoctor_RefusesAnUnknownExecutor(t *testing.T) {
	if _, err := doctor(t, "--executor=fast"); err == nil || err.Error() != `--executor "fast": give one of ["auto" "warm" "runner"]` {
		t.Errorf("error = %v", err)
	}
}
