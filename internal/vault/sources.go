package vault

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/rolewright/rolewright/internal/ansiblecfg"
)

// source is a file or script from which a password is read, with its vault ID.
type source struct {
	id, path string
}

// sourcesOf lists the sources that ansible-playbook would use: those of its
// arguments, of the environment, and of the configuration file.
func sourcesOf(args []string, lookupEnv func(string) (string, bool)) []source {
	env := func(name string) string { v, _ := lookupEnv(name); return v }
	settings, dir := ansiblecfg.Defaults(env("ANSIBLE_CONFIG"), "ansible.cfg", ansiblecfg.Home(env("HOME")), ansiblecfg.System)
	// The vault ID of password files that are named without one.
	id := cmp.Or(env("ANSIBLE_VAULT_IDENTITY"), settings["vault_identity"], "default")
	var found []source
	for i, arg := range args {
		name, value, joined := strings.Cut(arg, "=")
		if !joined && i+1 < len(args) {
			value = args[i+1]
		}
		switch { // argparse accepts any unambiguous abbreviation
		case strings.HasPrefix(name, "--vault-pa"):
			found = append(found, source{id, absolute(value, ".")})
		case strings.HasPrefix(name, "--vault-i"):
			found = append(found, identities(value, ".")...)
		}
	}
	if file := env("ANSIBLE_VAULT_PASSWORD_FILE"); file != "" {
		found = append(found, source{id, absolute(file, ".")})
	}
	found = append(found, identities(env("ANSIBLE_VAULT_IDENTITY_LIST"), ".")...)
	if file := settings["vault_password_file"]; file != "" {
		found = append(found, source{id, absolute(file, dir)})
	}
	return append(found, identities(settings["vault_identity_list"], dir)...)
}

// identities reads a list of label@source.
func identities(list, dir string) []source {
	var found []source
	for _, one := range strings.Split(list, ",") {
		id, path, labelled := strings.Cut(strings.TrimSpace(one), "@")
		if !labelled {
			id, path = "", id
		}
		if path != "" && !strings.HasPrefix(path, "prompt") {
			found = append(found, source{id: id, path: absolute(path, dir)})
		}
	}
	return found
}

func absolute(path, dir string) string {
	path = os.ExpandEnv(path)
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		path = filepath.Join(os.Getenv("HOME"), rest)
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	return path
}

// scriptTimeout is how long a script that prints a password may take: it may ask a
// key store over the network.
const scriptTimeout = 30 * time.Second

// password reads a password file, or runs it if it is executable, as Ansible
// does.
func (s source) password(ctx context.Context) ([]byte, error) {
	info, err := os.Stat(s.path)
	if err != nil {
		return nil, fmt.Errorf("vault password: %w", err)
	}
	var data []byte
	if info.Mode()&0o111 == 0 {
		data, err = os.ReadFile(s.path)
		data = bytes.TrimSpace(data)
	} else {
		ctx, cancel := context.WithTimeout(ctx, scriptTimeout)
		defer cancel()
		var args []string
		base := filepath.Base(s.path)
		if s.id != "" && strings.HasSuffix(strings.TrimSuffix(base, filepath.Ext(base)), "-client") {
			args = []string{"--vault-id", s.id}
		}
		cmd := exec.CommandContext(ctx, s.path, args...)
		cmd.WaitDelay = time.Second
		data, err = cmd.Output()
		data = bytes.Trim(data, "\r\n")
	}
	if err != nil {
		return nil, fmt.Errorf("vault password from %s: %w", s.path, err)
	}
	return data, nil
}

// split splits arguments roughly as shlex does. It need not refuse what shlex refuses:
// no run starts with such a text.
func split(text string) []string {
	var args []string
	var arg strings.Builder
	var quote rune
	escaped, begun := false, false
	for _, r := range text {
		switch {
		case escaped:
			arg.WriteRune(r)
			escaped = false
		case r == '\\' && quote != '\'':
			escaped, begun = true, true
		case quote != 0 && r == quote:
			quote = 0
		case quote == 0 && (r == '"' || r == '\''):
			quote, begun = r, true
		case quote == 0 && (r == ' ' || r == '\t' || r == '\n'):
			if begun {
				args = append(args, arg.String())
			}
			arg.Reset()
			begun = false
		default:
			arg.WriteRune(r)
			begun = true
		}
	}
	if begun {
		args = append(args, arg.String())
	}
	return args
}
