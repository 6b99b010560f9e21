package main

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestParse_RefusesWhatMakesNoSense(t *testing.T) {
	tests := []struct {
		name string
		mode string
		args []string
		want string // part of the message; empty: accepted
	}{
		{name: "run alone", mode: "run"},
		{name: "exec with a command", mode: "exec", args: []string{"--kwok", "--", "go", "test", "-v"}},
		{name: "exec without a command", mode: "exec", args: []string{"--kwok"}, want: "wants a command"},
		{name: "up without a directory", mode: "up", want: "wants --dir"},
		{name: "down without a directory", mode: "down", want: "wants --dir"},
		{name: "an argument too many", mode: "run", args: []string{"now"}, want: `unexpected argument "now"`},
		{name: "an unknown mode", mode: "start", want: `unknown mode "start"`},
		{name: "an open port for one that runs alone", mode: "up", args: []string{"--dir=x", "--pods-exec"}, want: "for run and exec"},
		{name: "a parent for what has none", mode: "up", args: []string{"--dir=x", "--die-with-parent"}, want: "belongs to run"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, _, err := parse(tt.mode, tt.args)
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("parse: %v", err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("parse: error %v, want one with %q", err, tt.want)
			}
		})
	}
}

func TestParse_KeepsTheCommandsOwnFlags(t *testing.T) {
	opts, command, err := parse("exec", []string{"--dir", "state", "--", "go", "test", "--kwok"})
	if err != nil {
		t.Fatalf("parse: %v", err)
	}
	if want := []string{"go", "test", "--kwok"}; !slices.Equal(command, want) {
		t.Errorf("command = %q, want %q", command, want)
	}
	if opts.Kwok || !filepath.IsAbs(opts.Dir) || !filepath.IsAbs(opts.Assets) {
		t.Errorf("options = %+v, want no kwok and absolute paths", opts)
	}
}

func TestReservePort_KeepsThePortFromOthersAndNotFromTheServer(t *testing.T) {
	reserved, err := reservePort()
	if err != nil {
		t.Fatalf("reserve: %v", err)
	}
	defer reserved.release()
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(reserved.number))
	if listener, err := net.Listen("tcp", address); err == nil {
		_ = listener.Close()
		t.Errorf("a stranger could listen on %s", address)
	}
	// Many more than fit by luck: the kernel never hands the port out.
	for range 200 {
		other, err := reservePort()
		if err != nil {
			t.Fatalf("reserve another: %v", err)
		}
		defer other.release()
		if other.number == reserved.number {
			t.Fatalf("port %d was handed out twice", other.number)
		}
	}
}

func TestClaimDir_RefusesWhatIsNotOurs(t *testing.T) {
	foreign := t.TempDir()
	if err := os.WriteFile(filepath.Join(foreign, "thesis.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(t.TempDir(), link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{foreign, link} {
		if _, err := claimDir(path); !errors.Is(err, errForeign) {
			t.Errorf("claim %s: error %v, want %v", path, err, errForeign)
		}
	}
	if _, err := os.Stat(filepath.Join(foreign, "thesis.txt")); err != nil {
		t.Errorf("the stranger's file is gone: %v", err)
	}
}

func TestClaimDir_IsExclusiveAndEndsWithRelease(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	first, err := claimDir(path)
	if err != nil {
		t.Fatalf("claim: %v", err)
	}
	if held, err := isHeld(path); err != nil || !held {
		t.Errorf("isHeld = %t, %v, want true", held, err)
	}
	if pid, err := holder(path); err != nil || pid != os.Getpid() {
		t.Errorf("holder = %d, %v, want %d", pid, err, os.Getpid())
	}
	if _, err := claimDir(path); !errors.Is(err, errHeld) {
		t.Errorf("second claim: error %v, want %v", err, errHeld)
	}
	if err := os.WriteFile(first.join("left"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	first.release() // as death does
	second, err := claimDir(path)
	if err != nil {
		t.Fatalf("claim after release: %v", err)
	}
	if _, err := os.Stat(second.join("left")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what the predecessor left is still there: %v", err)
	}
	if err := second.remove(); err != nil {
		t.Errorf("remove: %v", err)
	}
	if held, err := isHeld(path); err != nil || held {
		t.Errorf("isHeld after removal = %t, %v, want false", held, err)
	}
}

func TestShellQuote_LeavesOneWord(t *testing.T) {
	for path, want := range map[string]string{
		"/tmp/a-1/kubeconfig": "/tmp/a-1/kubeconfig",
		"/tmp/a b":            "'/tmp/a b'",
		"/tmp/it's":           `'/tmp/it'\''s'`,
		"/tmp/$HOME":          "'/tmp/$HOME'",
	} {
		if got := shellQuote(path); got != want {
			t.Errorf("shellQuote(%s) = %s, want %s", path, got, want)
		}
	}
}

func TestNewAPIServer_AuditsOnlyWhenAsked(t *testing.T) {
	assets := t.TempDir()
	if err := os.WriteFile(filepath.Join(assets, "kube-apiserver"), nil, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBEBUILDER_ASSETS", "")
	for _, log := range []string{"", "/var/log/audit.log"} {
		server, err := layout{dir: stateDir{path: "/state"}, assets: assets, auditLog: log}.newAPIServer()
		if err != nil {
			t.Fatalf("newAPIServer: %v", err)
		}
		if got := slices.Contains(server.args, "--audit-log-path="+log); got != (log != "") {
			t.Errorf("audit log %q: flag given = %t", log, got)
		}
	}
}

func TestFind_PrefersTheEnvironmentAndFallsBack(t *testing.T) {
	ours, theirs := t.TempDir(), t.TempDir()
	for _, path := range []string{ours + "/etcd", theirs + "/etcd", ours + "/kube-controller-manager"} {
		if err := os.WriteFile(path, nil, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("KUBEBUILDER_ASSETS", theirs)
	for name, want := range map[string]string{"etcd": theirs, "kube-controller-manager": ours} {
		if got, err := find(name, ours); err != nil || got != filepath.Join(want, name) {
			t.Errorf("find %s = %s, %v, want it in %s", name, got, err, want)
		}
	}
	if _, err := find("kube-apiserver", ours); err == nil || !strings.Contains(err.Error(), "make cluster-tools") {
		t.Errorf("find what is nowhere: error %v, want one that says what to do", err)
	}
}
