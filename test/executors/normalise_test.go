package executors

import (
	"cmp"
	"encoding/json"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rolewright/rolewright/test/must"
)

// normaliser removes from values what differs between any two runs.
type normaliser struct {
	names     *strings.Replacer
	unordered bool
	// set is for variables that a playbook sets, as set_fact does, and not for the facts of setup. The playbook chooses
	// their keys, so a key does not mean that its value is a time or an identifier.
	set bool
}

// isVolatile reports whether a key names a time or an identifier.
func isVolatile(key string) bool {
	return slices.Contains([]string{
		"uuid", "parent_uuid", "play_uuid", "task_uuid", "playbook_uuid", "runner_ident",
		"created", "start", "end", "delta", "duration", "elapsed", "pid",
		"atime", "mtime", "ctime", "inode", "jid", "ansible_job_id", "results_file",
		"ansible_facts", "version", "blocks",
		"uid", "resourceVersion", "creationTimestamp", "clusterIP", "clusterIPs", "time", "date",
	}, key)
}

// lasting are facts of setup that do not change while tests run. Others are about time, memory, disks and networks.
var lasting = regexp.MustCompile(`^ansible_(apparmor|architecture|cmdline|distribution.*|dns|effective_.*|env|fips|is_chroot|kernel.*|local|lsb|machine.*|nodename|` +
	`os_family|pkg_mgr|proc_cmdline|processor.*|python.*|real_.*|selinux.*|service_mgr|ssh_host_key_.*|system.*|user.*|virtualization_role|virtualization_type|hostname|fqdn|domain)$|` +
	`^(gather_subset|module_setup)$`)

// pattern matches times and identifiers within texts.
type pattern struct {
	pattern *regexp.Regexp
	with    string
}

var patterns = []pattern{
	{regexp.MustCompile(`ansible-tmp-[\d.]+-\d+-\d+`), "ansible-tmp-N"},
	{regexp.MustCompile(`ansible-local-\w+(?:/tmp\w+)?`), "ansible-local-N"},
	{regexp.MustCompile(`(ansible_[\w.]+_payload_)\w{8}`), "${1}N"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?`), "TIME"},
	{regexp.MustCompile(`\d:\d\d:\d\d\.\d{6}`), "TIME"},
	{regexp.MustCompile(`\b(?:j\d+|\d{9,})\.\d+\b`), "NUMBER"},
	{regexp.MustCompile(`0x[0-9a-f]{8,}`), "ADDRESS"},
	{regexp.MustCompile(`'audit-id': '[0-9a-f-]{36}`), "'audit-id': 'ID"},
	{regexp.MustCompile(`\btmp\w{8}\b`), "tmpN"},
	{regexp.MustCompile(`^\.[a-z0-9_]{8}$`), ".tmpN"},
	// The beginning of an event that a worker of ansible-core 2.19 displays.
	{regexp.MustCompile(`eyJ1dWlkIjogI[A-Za-z0-9+/=]+`), "EVENT"},
	{regexp.MustCompile(`"elapsed": \d+`), `"elapsed": N`},
	{regexp.MustCompile(`Paused for [\d.]+ seconds`), "Paused for N seconds"},
	{regexp.MustCompile(`\w{3}, \d\d \w{3} \d{4} [\d:]{8} GMT`), "TIME"},
	{regexp.MustCompile(`\b[0-9a-f]{32}\b`), "HEX"},
	{regexp.MustCompile(`\b(?:pid|PID|process)[ =:]*\d+`), "pid N"},
	{regexp.MustCompile(`"?(uid|resourceVersion|creationTimestamp|Audit-Id|X-Kubernetes-Pf-\w+-Uid|Date)"?'?: '?"?[^,'"}]+`), "$1: N"},
}

func (n normaliser) text(text string) string {
	text = n.names.Replace(text)
	for _, p := range patterns {
		text = p.pattern.ReplaceAllString(text, p.with)
	}
	return text
}

func (n normaliser) value(value any) any {
	switch v := value.(type) {
	case string:
		return n.text(v)
	case []any:
		for i := range v {
			v[i] = n.value(v[i])
		}
	case map[string]any:
		// If the times of writes differ by a second, a diff has them, and then nothing else of the metadata.
		if metadata, ok := v["metadata"].(map[string]any); ok {
			if delete(metadata, "managedFields"); len(metadata) == 0 {
				delete(v, "metadata")
			}
		}
		for key := range v {
			facts, isMap := v[key].(map[string]any)
			switch {
			case key == "ansible_facts" && isMap:
				if facts["module_setup"] != nil {
					maps.DeleteFunc(facts, func(name string, _ any) bool { return !lasting.MatchString(name) })
				}
				v[key] = normaliser{names: n.names, set: true}.value(facts)
			case isVolatile(key) && !n.set:
				v[key] = "volatile"
			default:
				v[key] = n.value(v[key])
			}
		}
	}
	return value
}

// Values that a playbook sets are compared, and of the facts of setup those that last.
func TestNormaliser_KeepsWhatAPlaybookSets(t *testing.T) {
	for _, c := range []struct{ facts, want string }{
		{`{"version": 1, "app": {"version": 2, "date": "2026-01-02 03:04:05"}}`, `{"version": 1, "app": {"version": 2, "date": "TIME"}}`},
		{`{"ansible_uptime_seconds": 1, "ansible_env": {"version": "2"}, "module_setup": true}`, `{"ansible_env": {"version": "2"}, "module_setup": true}`},
	} {
		var got, want any
		must.Do(t, json.Unmarshal([]byte(`{"version": 1, "ansible_facts": `+c.facts+`}`), &got))
		must.Do(t, json.Unmarshal([]byte(`{"version": "volatile", "ansible_facts": `+c.want+`}`), &want))
		must.Be(t, "events with "+c.facts, want, normaliser{names: strings.NewReplacer()}.value(got))
	}
}

// events returns the events in order (see orderHosts), and the displayed lines: those of events, and the others.
//
// The output is taken from the events, not from the file stdout: if ansible-runner reads several lines outside of events
// at once with the beginning of an event, it writes only the last of them to that file; see
// TestRunner_LosesLinesInStdout.
func (n normaliser) events(t *testing.T, dir string) (kept []any, output []string) {
	t.Helper()
	names := must.Get(filepath.Glob(filepath.Join(dir, "*.json")))(t)
	var events []map[string]any
	for _, name := range names {
		if strings.HasSuffix(name, "-partial.json") {
			continue // it was written, and not yet displayed when the run was stopped
		}
		text := must.Get(os.ReadFile(name))(t)
		var event map[string]any
		if err := json.Unmarshal(text, &event); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		events = append(events, event)
	}
	slices.SortFunc(events, func(a, b map[string]any) int {
		return cmp.Compare(a["counter"].(float64), b["counter"].(float64))
	})
	orderHosts(events)
	started := map[any]bool{}
	for i, event := range events {
		// How often an asynchronous task is polled depends on timing.
		if polled := "runner_on_async_poll"; i > 0 && event["event"] == polled && events[i-1]["event"] == polled {
			continue
		}
		if text, _ := event["stdout"].(string); text != "" {
			lines := strings.Split(n.text(strings.ReplaceAll(text, "\r\n", "\n")), "\n")
			output = append(output, slices.DeleteFunc(lines, isOfLoading)...)
		}
		// Where output outside of events is split depends on timing.
		if event["event"] == "verbose" {
			continue
		}
		// A handler that starts again repeats the event of its first start, with the ID of its task. ansible-runner keeps
		// the event's data in a file with that ID, which it removes with the first event. If the second event was already
		// written then, its data is lost (event_callback in ansible_runner/runner.py).
		if id := event["uuid"]; started[id] {
			maps.DeleteFunc(event, func(key string, _ any) bool { return key != "uuid" && key != "runner_ident" })
		} else {
			started[id] = true
		}
		for _, key := range []string{"counter", "start_line", "end_line", "stdout"} {
			delete(event, key)
		}
		kept = append(kept, n.value(event))
	}
	if n.unordered {
		// Which task has a second banner also depends on the order.
		slices.Sort(output)
		output = slices.Compact(output)
		slices.SortFunc(kept, func(a, b any) int { return cmp.Compare(encoded(a), encoded(b)) })
	}
	return kept, output
}

// orderHosts sorts the events of each task by host, and keeps the order of each host's events: which host finishes first
// depends on timing.
func orderHosts(events []map[string]any) {
	taskAndHost := func(event map[string]any) (task, host string) {
		data, _ := event["event_data"].(map[string]any)
		task, _ = data["task_uuid"].(string)
		host, _ = data["host"].(string)
		return task, host
	}
	for begin := 0; begin < len(events); {
		task, host := taskAndHost(events[begin])
		end := begin + 1
		for ; end < len(events) && host != ""; end++ {
			if t, h := taskAndHost(events[end]); t != task || h == "" {
				break
			}
		}
		slices.SortStableFunc(events[begin:end], func(a, b map[string]any) int {
			_, hostA := taskAndHost(a)
			_, hostB := taskAndHost(b)
			return cmp.Compare(hostA, hostB)
		})
		begin = end
	}
}

// isOfLoading matches lines of high verbosity that say what is loaded now: in forked runs, some of it is loaded already.
func isOfLoading(line string) bool {
	for _, text := range []string{"META: ran", "redirecting", "Loading callback", "Loading collection"} {
		if strings.Contains(line, text) {
			return true
		}
	}
	return false
}

func encoded(value any) string {
	text, _ := json.Marshal(value) // it was decoded from JSON, so it can be encoded
	return string(text)
}

// files returns the files in a directory, with mode and content.
func (n normaliser) files(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	must.Do(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		found[name] = info.Mode().String()
		if info.Mode().IsRegular() {
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			found[name] += " " + n.text(string(text))
		}
		return nil
	}))
	return found
}
