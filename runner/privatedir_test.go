package runner

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rolewright/rolewright/test/must"
)

// tree describes a directory: path → mode and content, or link target.
func tree(t *testing.T, root string) map[string]string {
	t.Helper()
	found := map[string]string{}
	must.Do(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := entry.Info()
		if err != nil {
			return err
		}
		text := fi.Mode().String()
		switch {
		case fi.Mode().IsRegular():
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			text += " " + string(data)
		case fi.Mode()&fs.ModeSymlink != 0:
			link, err := os.Readlink(path)
			if err != nil {
				return err
			}
			text = "-> " + link
		}
		name, _ := filepath.Rel(root, path)
		found[name] = text
		return nil
	}))
	return found
}

// write creates a file with a mode, and the directories above it. It returns the file's name.
func write(t *testing.T, name, content string, mode fs.FileMode) string {
	t.Helper()
	must.Do(t, os.MkdirAll(filepath.Dir(name), 0o755))
	must.Do(t, os.WriteFile(name, []byte(content), mode))
	must.Do(t, os.Chmod(name, mode))
	return name
}

func TestCreatePrivateDir_Layout(t *testing.T) {
	playbook := write(t, filepath.Join(t.TempDir(), "main.yml"), "- hosts: all\n", 0o644)
	dir := filepath.Join(t.TempDir(), testID)
	req := Request{
		ID:        testID,
		Dir:       dir,
		Content:   Content{Playbook: playbook},
		ExtraVars: []byte(`{"size": 3}`),
		Env:       map[string]string{"KUBECONFIG": dir + "/kube/config", "ROLEWRIGHT_RUN": "forged"},
		Files:     map[string][]byte{"kube/config": []byte("apiVersion: v1\n"), "top": nil},
		Cmdline:   "'--tags a'",
	}
	// The modes are the same with every umask.
	for _, umask := range []int{0, 0o022, 0o777} {
		old := syscall.Umask(umask)
		err := createPrivateDir(req, nil)
		syscall.Umask(old)
		if err != nil {
			t.Fatal(err)
		}
		async := `"ansible_async_dir":"` + dir + `/tmp",`
		if os.Geteuid() == 0 {
			async = ""
		}
		want := map[string]string{
			".":                                  "drwx------",
			"artifacts":                          "drwx------",
			"callback":                           "drwx------",
			"callback/rolewright_guard.py":       "-rw------- " + string(guardPlugin),
			"env":                                "drwx------",
			"env/cmdline":                        "-rw------- --tags a",
			"env/envvars":                        `-rw------- {"KUBECONFIG":"` + dir + `/kube/config"}`,
			"env/extravars":                      `-rw------- {"size": 3}`,
			"env/settings":                       `-rw------- {"pexpect_timeout":1,"suppress_ansible_output":true}`,
			"inventory":                          "drwx------",
			"inventory/hosts":                    "-rw------- localhost ansible_connection=local ansible_python_interpreter={{ansible_playbook_python}}",
			"inventory/host_vars":                "drwx------",
			"inventory/host_vars/localhost.json": `-rw------- {` + async + `"ansible_remote_tmp":"` + dir + `/tmp"}`,
			"kube":                               "drwx------",
			"kube/config":                        "-rw------- apiVersion: v1\n",
			"project":                            "drwx------",
			"project/playbook.yaml":              "-rw------- - hosts: all\n",
			"tmp":                                "drwx------",
			"top":                                "-rw------- ",
		}
		if diff := cmp.Diff(want, tree(t, dir)); diff != "" {
			t.Errorf("umask %o: private data dir (-want +got):\n%s", umask, diff)
		}
		must.Do(t, os.RemoveAll(dir))
	}
}

func TestAsyncDir_IsTheRunsWhereNobodyElseWrites(t *testing.T) {
	const nobody = 65534
	for _, tc := range []struct {
		environ []string
		euid    int
		want    string
	}{
		{nil, nobody, "/run/tmp"},
		{[]string{"ANSIBLE_ASYNC_DIR=/given"}, nobody, ""},
		{nil, 0, ""}, // a task may become any user
	} {
		if got := asyncDir("/run", tc.environ, tc.euid); got != tc.want {
			t.Errorf("user %d, %q: %q, want %q", tc.euid, tc.environ, got, tc.want)
		}
	}
}

func TestCreatePrivateDir_Cmdline(t *testing.T) {
	tests := []struct{ cmdline, want string }{ // want is empty for no file
		{"", ""},
		{" ", ""},
		{"''", ""},
		{"'", "'"},
		{"--tags a", "--tags a"},
		{"'--tags a'", "--tags a"},
		{"--tags 'a'", "--tags 'a'"},
		{`"--tags a"`, `"--tags a"`},
	}
	for _, tt := range tests {
		t.Run(tt.cmdline, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), testID)
			must.Do(t, createPrivateDir(Request{ID: testID, Dir: dir, Content: Content{Role: "/r"}, Cmdline: tt.cmdline}, nil))
			got, err := os.ReadFile(filepath.Join(dir, "env/cmdline"))
			if (tt.want == "") != errors.Is(err, fs.ErrNotExist) || string(got) != tt.want {
				t.Errorf("env/cmdline = %q, %v, want %q", got, err, tt.want)
			}
		})
	}
}

func TestCreatePrivateDir_Inventory(t *testing.T) {
	source := t.TempDir()
	write(t, filepath.Join(source, "single"), "one\n", 0o644)
	write(t, filepath.Join(source, "script"), "#!/bin/sh\n", 0o755)
	write(t, filepath.Join(source, "tree/hosts"), "two\n", 0o444)
	write(t, filepath.Join(source, "tree/group_vars/all.yml"), "a: b\n", 0o666)
	write(t, filepath.Join(source, "tree/script.sh"), "#!/bin/sh\n", 0o755)
	write(t, filepath.Join(source, "mounted/..2026/hosts"), "three\n", 0o644)
	link := func(target, name string) {
		must.Do(t, os.Symlink(target, filepath.Join(source, name)))
	}
	link("..2026", "mounted/..data")
	link("..data/hosts", "mounted/hosts")
	link("single", "link")

	tests := []struct {
		name    string
		source  string // within source
		environ []string
		want    map[string]string
	}{
		{"built in", "", nil, map[string]string{
			"hosts": "-rw------- localhost ansible_connection=local ansible_python_interpreter={{ansible_playbook_python}}",
		}},
		{"built in, virtual environment", "", []string{"VIRTUAL_ENV=/opt/venv"}, map[string]string{
			"hosts": "-rw------- localhost ansible_connection=local ansible_python_interpreter=/opt/venv/bin/python3",
		}},
		{"file", "single", nil, map[string]string{"hosts": "-rw------- one\n"}},
		{"link to a file", "link", nil, map[string]string{"hosts": "-rw------- one\n"}},
		{"executable file", "script", nil, map[string]string{"hosts": "-rwx------ #!/bin/sh\n"}},
		{"directory", "tree", nil, map[string]string{
			"hosts":              "-rw------- two\n",
			"script.sh":          "-rwx------ #!/bin/sh\n",
			"group_vars":         "drwx------",
			"group_vars/all.yml": "-rw------- a: b\n",
		}},
		{"mounted ConfigMap", "mounted", nil, map[string]string{
			"..2026":       "drwx------",
			"..2026/hosts": "-rw------- three\n",
			"..data":       "-> ..2026",
			"hosts":        "-> ..data/hosts",
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), testID)
			req := Request{ID: testID, Dir: dir, Content: Content{Role: "/r"}}
			if tt.source != "" {
				req.Inventory = filepath.Join(source, tt.source)
			}
			must.Do(t, createPrivateDir(req, tt.environ))
			got := tree(t, filepath.Join(dir, "inventory"))
			delete(got, ".")
			if tt.source == "" { // TestCreatePrivateDir_Layout has them
				delete(got, "host_vars")
				delete(got, "host_vars/localhost.json")
			}
			must.Be(t, "inventory", tt.want, got)
		})
	}
}

func TestCreatePrivateDir_Refuses(t *testing.T) {
	source := t.TempDir()
	for _, dir := range []string{"escaping", "absolute", "fifo"} {
		must.Do(t, os.Mkdir(filepath.Join(source, dir), 0o755))
	}
	must.Do(t, errors.Join(
		os.Symlink("../../../../etc/hostname", filepath.Join(source, "escaping/hosts")),
		os.Symlink("/etc/hostname", filepath.Join(source, "absolute/hosts")),
		syscall.Mkfifo(filepath.Join(source, "fifo/hosts"), 0o600),
		syscall.Mkfifo(filepath.Join(source, "pipe"), 0o600),
	))
	tests := []struct {
		name   string
		change func(*Request)
	}{
		{"missing inventory", func(r *Request) { r.Inventory = source + "/missing" }},
		{"inventory whose link escapes", func(r *Request) { r.Inventory = source + "/escaping" }},
		{"inventory with an absolute link", func(r *Request) { r.Inventory = source + "/absolute" }},
		{"inventory with a FIFO", func(r *Request) { r.Inventory = source + "/fifo" }},
		{"inventory that is a FIFO", func(r *Request) { r.Inventory = source + "/pipe" }},
		{"file that climbs", func(r *Request) { r.Files = map[string][]byte{"../x": nil} }},
		{"absolute file", func(r *Request) { r.Files = map[string][]byte{"/x": nil} }},
		{"file that replaces ours", func(r *Request) { r.Files = map[string][]byte{"env/extravars": nil} }},
		{"file that is a directory", func(r *Request) { r.Files = map[string][]byte{"env": nil} }},
		{"parent missing", func(r *Request) { r.Dir = filepath.Join(r.Dir, "child", testID) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			parent := t.TempDir()
			req := Request{ID: testID, Dir: filepath.Join(parent, testID), Content: Content{Role: "/r"}}
			tt.change(&req)
			if err := createPrivateDir(req, nil); err == nil {
				t.Error("no error")
			}
			if left := tree(t, parent); len(left) != 1 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

func TestCreatePrivateDir_NeverReusesADirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), testID)
	must.Do(t, os.Mkdir(dir, 0o700))
	err := createPrivateDir(Request{ID: testID, Dir: dir, Content: Content{Role: "/r"}}, nil)
	if !errors.Is(err, fs.ErrExist) {
		t.Errorf("error = %v, want ErrExist", err)
	}
	if got := tree(t, dir); len(got) != 1 {
		t.Errorf("the directory was written to: %v", got)
	}
}

func TestCreatePrivateDir_MissingPlaybookIsForAnsibleToReport(t *testing.T) {
	dir := filepath.Join(t.TempDir(), testID)
	must.Do(t, createPrivateDir(Request{ID: testID, Dir: dir, Content: Content{Playbook: "/no/such/playbook.yml"}}, nil))
	for name := range tree(t, filepath.Join(dir, "project")) {
		if strings.HasPrefix(name, "playbook") {
			t.Errorf("project/%s exists", name)
		}
	}
}
