package runner

import (
	_ "embed" // the guard
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/rolewright/rolewright/internal/failpoint"
	"github.com/rolewright/rolewright/runner/internal/ansibleenv"
	"github.com/rolewright/rolewright/runner/plainfile"
	"github.com/rolewright/rolewright/runner/rundir"
)

// The modes of everything in a private data directory, which is private because
// extra vars and artifacts may contain secrets of the custom resource and the
// environment.
const (
	dirMode  fs.FileMode = 0o700
	fileMode fs.FileMode = 0o600
	// secretMode is the mode of the files in SecretsDir.
	secretMode fs.FileMode = 0o400
)

// runnerLog is the file of the private data directory for the output of
// ansible-runner itself: nothing, or a traceback.
const runnerLog = "runner.log"

// The directories that Rolewright adds to ansible-runner's layout: for the guard,
// and for Ansible's temporary files.
const (
	callbackDir = "callback"
	tempDir     = "tmp"
)

// guardPlugin is a callback plugin that keeps what a playbook prints out of
// ansible-runner's channel for events.
//
//go:embed guard.py
var guardPlugin []byte

// settings are ansible-runner's env/settings.
type settings struct {
	// PexpectTimeout is how long ansible-runner takes to notice a signal, in
	// seconds. Its default of 5 would waste the grace period.
	PexpectTimeout int `json:"pexpect_timeout"`
	// SuppressOutput keeps ansible-runner from printing the playbook's output,
	// which its artifacts contain anyway.
	SuppressOutput bool `json:"suppress_ansible_output"`
}

// createPrivateDir creates the private data directory of a normalised request.
// It builds the directory under another name and renames it, so that a directory
// with the name of a run is always complete. It does not call fsync: after a crash
// of the machine, no directory is used again.
func createPrivateDir(req Request, environ []string) (err error) {
	if _, err := os.Lstat(req.Dir); err == nil {
		// The rename below would replace an empty directory.
		return fmt.Errorf("create private data dir: %s: %w", req.Dir, fs.ErrExist)
	}
	building := rundir.Building(req.Dir)
	if err := os.Mkdir(building, dirMode); err != nil {
		return fmt.Errorf("create private data dir: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("create private data dir: %w", err), os.RemoveAll(building))
		}
	}()
	if err := os.Chmod(building, dirMode); err != nil { // regardless of the umask
		return err
	}
	root, err := os.OpenRoot(building)
	if err != nil {
		return err
	}
	defer root.Close()
	failpoint.Hit("privatedir.made")
	if err := (privateDir{root}).fill(req, environ); err != nil {
		return err
	}
	failpoint.Hit("privatedir.before-rename")
	err = os.Rename(building, req.Dir)
	failpoint.Hit("privatedir.renamed")
	return err
}

// privateDir is a private data directory under construction.
type privateDir struct{ root *os.Root }

func (d privateDir) fill(req Request, environ []string) error {
	if req.reports != nil {
		return d.fillCommand(req)
	}
	for _, dir := range []string{"env", "inventory", "project", "artifacts", callbackDir, tempDir} {
		if err := d.mkdir(dir); err != nil {
			return err
		}
	}
	variables := maps.Clone(req.Env)
	if variables == nil {
		variables = map[string]string{}
	}
	delete(variables, cookieName)
	if err := d.writeJSON("env/envvars", variables); err != nil {
		return err
	}
	if err := d.writeJSON("env/settings", settings{PexpectTimeout: 1, SuppressOutput: true}); err != nil {
		return err
	}
	extraVars := req.ExtraVars
	if len(extraVars) == 0 {
		extraVars = []byte("{}")
	}
	failpoint.Hit("privatedir.before-extravars")
	if err := d.write("env/extravars", extraVars); err != nil {
		return err
	}
	failpoint.Hit("privatedir.after-extravars")
	if cmdline := unquote(req.Cmdline); strings.TrimSpace(cmdline) != "" {
		if err := d.write("env/cmdline", []byte(cmdline)); err != nil {
			return err
		}
	}
	if err := d.write(callbackDir+"/rolewright_guard.py", guardPlugin); err != nil {
		return err
	}
	if err := d.inventory(req, environ); err != nil {
		return err
	}
	if err := d.playbook(req.Content.Playbook); err != nil {
		return err
	}
	return d.files(req.Files)
}

// unquote strips a pair of single quotes, which manifests tend to put around the
// value of --ansible-args.
func unquote(cmdline string) string {
	if len(cmdline) >= 2 && strings.HasPrefix(cmdline, "'") && strings.HasSuffix(cmdline, "'") {
		return cmdline[1 : len(cmdline)-1]
	}
	return cmdline
}

// inventory writes the built-in inventory, or copies the one that replaces it.
// The built-in inventory puts the temporary files of modules on localhost into
// the private data directory, too; Ansible's default is the home directory in the
// password file. Other hosts have no such directory.
func (d privateDir) inventory(req Request, environ []string) error {
	source := req.Inventory
	if source == "" {
		if err := d.mkdir("inventory/host_vars"); err != nil {
			return err
		}
		vars := map[string]string{"ansible_remote_tmp": path.Join(req.Dir, tempDir)}
		if dir := asyncDir(req.Dir, environ, os.Geteuid()); dir != "" {
			vars["ansible_async_dir"] = dir
		}
		if err := d.writeJSON("inventory/host_vars/localhost.json", vars); err != nil {
			return err
		}
		python := "{{ansible_playbook_python}}"
		if venv := ansibleenv.Lookup(environ, "VIRTUAL_ENV"); venv != "" {
			python = path.Join(venv, "bin", "python3")
		}
		line := "localhost ansible_connection=local ansible_python_interpreter=" + python
		return d.write("inventory/hosts", []byte(line))
	}
	fi, err := os.Stat(source)
	if err != nil {
		return fmt.Errorf("read inventory: %w", err)
	}
	if !fi.IsDir() {
		// The file itself may be a link to any place: the user chose it.
		if err := d.copyPath(source, "inventory/hosts", fi.Mode()); err != nil {
			return fmt.Errorf("copy inventory: %w", err)
		}
		return nil
	}
	from, err := os.OpenRoot(source)
	if err != nil {
		return fmt.Errorf("read inventory: %w", err)
	}
	defer from.Close()
	if err := d.copyTree(from, "inventory"); err != nil {
		return fmt.Errorf("copy inventory %s: %w", source, err)
	}
	return nil
}

// asyncDir is the directory in which asynchronous tasks leave their results. It is
// empty if Ansible's default, in the home directory of the task's user, is to be used:
// if the operator is root, the task may run as any user (become), and other users
// cannot write to the private data directory.
func asyncDir(dir string, environ []string, euid int) string {
	if euid == 0 || ansibleenv.Lookup(environ, "ANSIBLE_ASYNC_DIR") != "" {
		return ""
	}
	return path.Join(dir, tempDir)
}

// copyTree copies a directory. Links inside it, such as those of a mounted
// ConfigMap, are copied as links; links that lead outside are refused.
func (d privateDir) copyTree(from *os.Root, to string) error {
	return fs.WalkDir(from.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		target := path.Join(to, name)
		switch fi, err := from.Lstat(name); {
		case err != nil:
			return err
		case fi.IsDir():
			return d.mkdir(target)
		case fi.Mode()&fs.ModeSymlink != 0:
			if _, err := from.Stat(name); err != nil {
				return fmt.Errorf("link that leads nowhere or outside: %w", err)
			}
			link, err := from.Readlink(name)
			if err != nil {
				return err
			}
			return d.root.Symlink(link, target)
		case fi.Mode().IsRegular():
			in, err := from.Open(name)
			if err != nil {
				return err
			}
			defer in.Close()
			return d.copy(in, target, fi.Mode())
		default:
			return fmt.Errorf("%s is neither a file, a directory nor a link", name)
		}
	})
}

// playbook copies the playbook for people who look at the directory; the run uses
// the original. If that cannot be read, Ansible reports it.
func (d privateDir) playbook(source string) error {
	if source == "" {
		return nil
	}
	err := d.copyPath(source, "project/playbook.yaml", fileMode)
	if err != nil && !errors.Is(err, errSource) {
		return err
	}
	return nil
}

// files writes the caller's files, and the directories that they need.
func (d privateDir) files(files map[string][]byte) error {
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if !fs.ValidPath(name) || name == "." {
			return fmt.Errorf("file %q is not a local path", name)
		}
		for i, c := range name {
			if c != '/' {
				continue
			}
			if err := d.mkdir(name[:i]); err != nil && !errors.Is(err, fs.ErrExist) {
				return err
			}
		}
		mode := fileMode
		if strings.HasPrefix(name, SecretsDir+"/") {
			mode = secretMode
		}
		if err := d.writeAs(name, files[name], mode); err != nil {
			return err
		}
	}
	return nil
}

func (d privateDir) mkdir(name string) error {
	if err := d.root.Mkdir(name, dirMode); err != nil {
		return err
	}
	return d.root.Chmod(name, dirMode)
}

func (d privateDir) writeJSON(name string, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	return d.write(name, data)
}

func (d privateDir) write(name string, data []byte) error { return d.writeAs(name, data, fileMode) }

func (d privateDir) writeAs(name string, data []byte, mode fs.FileMode) error {
	out, err := d.create(name, mode)
	if err != nil {
		return err
	}
	_, err = out.Write(data)
	return errors.Join(err, out.Close())
}

// create creates a file that must not exist, with exactly the given mode.
func (d privateDir) create(name string, mode fs.FileMode) (*os.File, error) {
	out, err := d.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return nil, err
	}
	if err := out.Chmod(mode); err != nil {
		return nil, errors.Join(err, out.Close())
	}
	return out, nil
}

// errSource is wrapped by errors about the source of a copy, not the target.
var errSource = errors.New("unusable source")

// copyPath copies a regular file.
func (d privateDir) copyPath(source, target string, mode fs.FileMode) error {
	fi, err := os.Stat(source)
	if err == nil && !fi.Mode().IsRegular() {
		err = &fs.PathError{Op: "copy", Path: source, Err: errors.New("not a regular file")}
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errSource, err)
	}
	in, err := os.Open(source)
	if err != nil {
		return fmt.Errorf("%w: %w", errSource, err)
	}
	defer in.Close()
	return d.copy(in, target, mode)
}

// copy copies a file. It keeps the owner's permissions, so that an inventory
// script stays executable, and gives none to others.
func (d privateDir) copy(in io.Reader, target string, mode fs.FileMode) error {
	out, err := d.create(target, mode&dirMode|fileMode)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// gone tells whether a path does not exist.
func gone(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, fs.ErrNotExist)
}

// linkLatest links artifacts/latest to the run's artifacts, if there are any.
func linkLatest(dir, id string) error {
	root, err := plainfile.OpenDir(dir)
	if err != nil {
		return fmt.Errorf("link latest artifacts: %w", err)
	}
	defer root.Close()
	if fi, err := root.Lstat(path.Join("artifacts", id)); err != nil || !fi.IsDir() {
		return nil
	}
	if err := root.Symlink(id, "artifacts/latest"); err != nil {
		return fmt.Errorf("link latest artifacts: %w", err)
	}
	return nil
}
