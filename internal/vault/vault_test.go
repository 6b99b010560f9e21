package vault

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv/parts"
)

// write makes a file below dir and returns its path.
func write(t *testing.T, dir, name, text string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(dir, name)
	must.Do(t, os.MkdirAll(filepath.Dir(path), 0o700))
	must.Do(t, os.WriteFile(path, []byte(text), mode))
	return path
}

// encrypt encrypts a text with the installed ansible-vault.
func encrypt(t *testing.T, identity, text string) string {
	t.Helper()
	parts.Ansible(t)
	path := write(t, t.TempDir(), "text", text, 0o600)
	cmd := exec.CommandContext(t.Context(), "ansible-vault", "encrypt", "--vault-id", identity, path)
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("ansible-vault: %v\n%s", err, out)
	}
	data := must.Get(os.ReadFile(path))(t)
	return string(data)
}

func none(string) (string, bool) { return "", false }

func TestValues_RealVaultTexts(t *testing.T) {
	dir := t.TempDir()
	one := write(t, dir, "passwords/one", "first password\n", 0o600)
	two := write(t, dir, "passwords/two-client", "#!/bin/sh\n[ \"$1 $2\" = '--vault-id prod' ] && echo second\n", 0o700)
	content := filepath.Join(dir, "content")
	write(t, content, "vars/main.yml", "plain: x\ninline: !vault |\n    "+
		strings.ReplaceAll(encrypt(t, "prod@"+two, "inline secret"), "\n", "\n    ")+"\nnext: y\n", 0o600)
	write(t, content, "group_vars/all/vault", encrypt(t, one, "password: of a file\n"), 0o600)
	write(t, content, ".git/vault", encrypt(t, one, "hidden"), 0o600)
	write(t, content, "damaged", "$ANSIBLE_VAULT;1.1;AES256\n3861\n", 0o600)
	extra := write(t, dir, "extra.yml", encrypt(t, one, "extra: vars\n"), 0o600)

	v := New("-v --vault-password-file='"+one+"' --vault-id prod@"+two+" -e @"+extra, none)
	got, err := v.Values(t.Context(), content, filepath.Join(dir, "no such"))
	slices.Sort(got)
	must.Be(t, "values", []string{"extra: vars\n", "inline secret", "password: of a file\n"}, got)
	if err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("error = %v, want one that names the damaged file", err)
	}
}

// The kubelet makes the first part of each path in a volume a link.
func TestValues_BehindLinkedDirectories(t *testing.T) {
	dir := t.TempDir()
	password := write(t, dir, "password", "of the vault\n", 0o600)
	role := filepath.Join(dir, "role")
	write(t, role, "..2026/vars/main.yml", encrypt(t, password, "of a volume"), 0o600)
	write(t, dir, "shared/app/vars.yml", encrypt(t, password, "of a linked role"), 0o600)
	for link, target := range map[string]string{"..data": "..2026", "vars": "..data/vars", "roles": "../shared", "again": "."} {
		must.Do(t, os.Symlink(target, filepath.Join(role, link)))
	}
	must.Do(t, os.Symlink("../role", filepath.Join(dir, "shared", "back")))
	got, err := New("--vault-password-file "+password, none).Values(t.Context(), role)
	slices.Sort(got)
	if diff := cmp.Diff([]string{"of a linked role", "of a volume"}, got); diff != "" || err != nil {
		t.Errorf("values (-want +got):\n%s; error %v", diff, err)
	}
}

func TestValues_SaysThatThereAreTooManyFiles(t *testing.T) {
	dir := t.TempDir()
	v := New("--vault-password-file "+write(t, dir, "password", "of the vault\n", 0o600), none)
	v.most = 2 // enough for the directory and the password
	must.Get(v.Values(t.Context(), dir))(t)
	write(t, dir, "another", "", 0o600)
	v.fresh = 0
	if _, err := v.Values(t.Context(), dir); err == nil || !strings.Contains(err.Error(), "more than 2 files") {
		t.Errorf("error = %v, want one that says that there are too many", err)
	}
}

// TestTexts_AreDecrypted: vault texts are decrypted in the variables of watches.yaml, also in their JSON form.
func TestTexts_AreDecrypted(t *testing.T) {
	password := write(t, t.TempDir(), "password", "of the vault\n", 0o600)
	v := New("--vault-password-file "+password, none)
	inJSON := must.Get(json.Marshal(map[string]string{"__ansible_vault": strings.TrimSpace(encrypt(t, password, "another"))}))(t)
	got, err := v.Texts(t.Context(), "plain", encrypt(t, password, "a secret"), string(inJSON), "$ANSIBLE_VAULT;1.1;AES256\n3861\n")
	if diff := cmp.Diff([]string{"a secret", "another"}, got); diff != "" || err == nil {
		t.Errorf("texts (-want +got):\n%s; error %v, want one about the damaged text", diff, err)
	}
}

// Values, passwords and vault texts that change while the operator runs are masked in the next run.
func TestValues_AreThoseOfNow(t *testing.T) {
	dir, content := t.TempDir(), t.TempDir()
	later := filepath.Join(dir, "later")
	password := write(t, dir, "password", "one", 0o600)
	v := New("--vault-id a@"+password+" --vault-id b@"+later, none)
	v.fresh = 0
	expect := func(what string, want ...string) {
		t.Helper()
		if got, err := v.Values(t.Context(), content); !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v; want %q", what, got, err, want)
		}
	}
	write(t, content, "vars.yml", encrypt(t, password, "first"), 0o600)
	expect("at first", "first")
	write(t, content, "vars.yml", encrypt(t, password, "second"), 0o600)
	expect("another value", "second")
	write(t, dir, "password", "two", 0o600)
	write(t, content, "vars.yml", encrypt(t, password, "third"), 0o600)
	expect("another password", "third")

	write(t, content, "vars.yml", encrypt(t, write(t, t.TempDir(), "script", "three", 0o600), "fourth"), 0o600)
	expect("a password that is missing")
	write(t, dir, "later", "#!/bin/sh\necho three\n", 0o700)
	expect("a script that comes later", "fourth")
	write(t, dir, "later", "#!/bin/sh\ncat "+dir+"/store\n", 0o700)
	write(t, dir, "store", "three\n", 0o600)
	expect("another script", "fourth")
	write(t, content, "vars.yml", encrypt(t, write(t, t.TempDir(), "script", "four", 0o600), "fifth"), 0o600)
	write(t, dir, "store", "four\n", 0o600)
	expect("asked a moment ago")
	minuteLater := func() {
		for s, is := range v.passwords {
			is.asked = is.asked.Add(-2 * askAgain)
			v.passwords[s] = is
		}
	}
	minuteLater()
	expect("a minute later", "fifth")

	// A password that was known stays known if the store is away, or if the run that asked for it has ended.
	write(t, content, "vars.yml", encrypt(t, write(t, t.TempDir(), "script", "five", 0o600), "sixth"), 0o600)
	write(t, content, "more.yml", encrypt(t, write(t, t.TempDir(), "script", "four", 0o600), "seventh"), 0o600)
	must.Do(t, os.Remove(filepath.Join(dir, "store")))
	minuteLater()
	expect("with the store away", "seventh")
	minuteLater()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if got, _ := v.Values(ended, content); !slices.Equal(got, []string{"seventh"}) {
		t.Errorf("in a run that has ended: %q", got)
	}
	must.Do(t, os.Remove(filepath.Join(content, "more.yml")))
	must.Do(t, os.Remove(filepath.Join(content, "vars.yml")))
	expect("without the file")
}

func TestSources_AreThoseOfAnsible(t *testing.T) {
	dir := t.TempDir()
	config := write(t, dir, "ansible.cfg", "[other]\nvault_password_file = no\n[defaults]\nvault_password_file = ./pass ; a comment\n"+
		"vault_identity_list = a@/ids/a, b@prompt, /ids/c\n", 0o600)
	env := map[string]string{
		"ANSIBLE_CONFIG": config, "ANSIBLE_VAULT_PASSWORD_FILE": "/env/file", "ANSIBLE_VAULT_IDENTITY_LIST": "e@/env/id",
	}
	got := sourcesOf(split(`--vault-pass-file "/a b" --vault-id=x@/c\ d -e 'y z'`), func(name string) (string, bool) { v, ok := env[name]; return v, ok })
	want := []source{
		{"default", "/a b"}, {"x", "/c d"}, {"default", "/env/file"}, {"e", "/env/id"},
		{"default", filepath.Join(dir, "pass")}, {"a", "/ids/a"}, {path: "/ids/c"},
	}
	must.Be(t, "sources", want, got, cmp.AllowUnexported(source{}))
}

// A script whose name ends in -client is asked for the password of a label. The password is its output up to the end of
// the line.
func TestPassword_OfAScript(t *testing.T) {
	client := write(t, t.TempDir(), "one-client.sh", "#!/bin/sh\n[ \"$1\" = --vault-id ] && echo \"of $2 \"\n", 0o700)
	for label, want := range map[string]string{"": "of default ", "own": "of own "} {
		env := map[string]string{"ANSIBLE_VAULT_PASSWORD_FILE": client, "ANSIBLE_VAULT_IDENTITY": label}
		for _, s := range sourcesOf(nil, func(name string) (string, bool) { v, ok := env[name]; return v, ok }) {
			if got, err := s.password(t.Context()); err != nil || string(got) != want {
				t.Errorf("label %q: %q, %v; want %q", label, got, err, want)
			}
		}
	}
}

func TestValues_WithoutPasswordsLooksAtNothing(t *testing.T) {
	v := &Vault{}
	if got, err := v.Values(t.Context(), "/"); got != nil || err != nil {
		t.Errorf("Values = %v, %v", got, err)
	}
	v = New("--vault-password-file /no/such/file", none)
	if got, err := v.Values(t.Context(), t.TempDir()); got != nil || err == nil {
		t.Errorf("without a password that can be read: %v, %v", got, err)
	}
}
