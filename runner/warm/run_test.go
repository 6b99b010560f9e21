package warm_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rolewright/rolewright/runner"
)

const simple = `
- hosts: localhost
  gather_facts: false
  tasks: [{ping: }, {command: "true"}]
`

func TestRun_IsForked(t *testing.T) {
	t.Parallel()
	o := options(t)
	r, _ := start(t, o)
	run(t, r, simple)
	trace := traced(t, o)
	others := strings.Count(trace, "\n") - strings.Count(trace, "\nused ")
	if !strings.HasPrefix(trace, "playbook forked\n") || strings.Count(trace, "module forked ") != 2 || others != 3 {
		t.Errorf("trace:\n%s", trace)
	}
}

// Nothing of one run is seen by another.
func TestRun_SeesNothingOfAnother(t *testing.T) {
	t.Parallel()
	o := options(t)
	r, _ := start(t, o)
	dir := t.TempDir()
	for path, text := range map[string]string{
		"first/filter_plugins/leak.py": "import os, sys, tempfile, locale, signal, socket, logging\n" +
			"os.environ['LEAKED'] = 'x'; os.umask(0o777); os.chdir('/'); sys.path.append('/leaked'); socket.setdefaulttimeout(77)\n" +
			"tempfile.tempdir = '/leaked'; logging.root.addHandler(logging.NullHandler()); signal.signal(signal.SIGUSR1, lambda *_: None)\n" +
			"import kubernetes.client; kubernetes.client.Configuration.set_default(kubernetes.client.Configuration(host='http://leaked'))\n" +
			"import ansible.constants; ansible.constants.DEFAULT_TIMEOUT = 77; import json; json.leaked = 1\n" +
			"class FilterModule:\n    def filters(self):\n        return {'leaked': lambda x: x}\n",
		"second/filter_plugins/look.py": "import os, sys, tempfile, socket, logging, signal, json\n" +
			"import kubernetes.client, ansible.constants\n" +
			"class FilterModule:\n    def filters(self):\n        return {'look': lambda x: ' '.join(map(str, [os.environ.get('LEAKED'), oct(os.umask(0o022)), os.getcwd() == '/', '/leaked' in sys.path," +
			" socket.getdefaulttimeout(), tempfile.gettempdir() == '/leaked', len(logging.root.handlers), signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL," +
			" 'leaked' in kubernetes.client.Configuration.get_default_copy().host, ansible.constants.DEFAULT_TIMEOUT, hasattr(json, 'leaked')]))}\n",
	} {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	content := func(name, expression string) runner.Request {
		req := request(t, "")
		req.Content.Playbook = filepath.Join(dir, name, req.ID+".yml")
		text := "- hosts: localhost\n  gather_facts: false\n  tasks: [{debug: {msg: \"" + expression + "\"}}]\n"
		if err := os.WriteFile(req.Content.Playbook, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return req
	}
	for _, tt := range []struct {
		req  runner.Request
		want string
		ok   bool
	}{
		{content("first", "{{ 'seen' | leaked }}"), "seen", true},
		{content("second", "{{ 'x' | look }}"), "None 0o22 False False None False 0 True False 10 False", true},
		{content("second", "{{ 'x' | leaked }}"), "", false},
	} {
		res, err := r.Run(t.Context(), tt.req)
		if err != nil {
			t.Fatal(err)
		}
		if res.Verdict().Success != tt.ok || !strings.Contains(res.Tail, tt.want) {
			t.Errorf("want %q, verdict %+v\n%s", tt.want, res.Verdict(), res.Tail)
		}
	}
}
