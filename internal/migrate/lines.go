package migrate

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rolewright/rolewright/internal/scaffold"
)

// idle is the default of a watch's idleTimeout in seconds, and so the longest time
// that a task may be silent.
const idle = 30 * 60

// lineRule is a rule about lines that match a pattern.
type lineRule struct {
	rule    string
	pattern *regexp.Regexp
	// applies tells whether the rule applies, given the text of the pattern's group; nil if it
	// always does.
	applies func(group string) bool
}

// lineRules are the rules about lines, for each sort of file.
type lineRules struct{ tasks, content, run, manifest, metrics, hooks []lineRule }

func newLineRules() lineRules {
	tooLong := func(seconds string) bool {
		n, err := strconv.Atoi(seconds)
		return err != nil || n >= idle
	}
	proxy := lineRule{openProxy, regexp.MustCompile(`(?:localhost|127\.0\.0\.1|0\.0\.0\.0):8888`), nil}
	metrics := []lineRule{
		{alert, regexp.MustCompile(`\bcontroller_runtime_reconcile_errors_total\b`), nil},
		{queueMetric, regexp.MustCompile(`\b(?:workqueue_(?:depth|queue_duration_seconds|retries_total)|controller_runtime_reconcile_(?:total|time_seconds))(?:_bucket|_sum|_count)?\b`), nil},
	}
	return lineRules{
		tasks: []lineRule{
			{rescued, regexp.MustCompile(`^\s*(?:-\s+)?rescue:`), nil},
			{requeue, regexp.MustCompile(`^\s*(?:-\s+)?(?:operator_sdk\.util\.)?requeue_after:`), nil},
			{otherHosts, regexp.MustCompile(`^-?\s*hosts:\s*(\S.*)$`), func(hosts string) bool {
				return !slices.Contains([]string{"localhost", "127.0.0.1", "all"}, strings.Trim(hosts, `"'[] `))
			}},
			{longTask, regexp.MustCompile(`^\s*(?:async|wait_timeout|timeout):\s*["']?(\d+)`), tooLong},
			{background, regexp.MustCompile(`^\s*(?:-\s+)?poll:\s*["']?0["']?\s*$`), nil},
			{impersonation, regexp.MustCompile(`\b(?:impersonate_(?:user|groups)|K8S_AUTH_IMPERSONATE_(?:USER|GROUPS))\s*[:=]`), nil},
			{impersonation, regexp.MustCompile(`(?:^|[\s"'\[])--(?:as(?:-group|-uid)?|kube-as-(?:user|group))(?:[=\s"',\]]|$)`), nil},
		},
		content: []lineRule{
			{environment, regexp.MustCompile(`(?:lookup|query|q)\(\s*['"](?:ansible\.builtin\.)?env['"]\s*,\s*['"]([A-Za-z_][A-Za-z0-9_]*)['"]\s*\)?`), noInput},
			proxy,
		},
		run: []lineRule{
			{dnfPackages, regexp.MustCompile(`\b(?:microdnf|dnf|yum)\b[^&|;]*`), nil},
			{pipPackages, regexp.MustCompile(`\b(?:pip3?|python3?(?:\.\d+)? -m pip)\s+install\b[^&|;]*`), nil},
			proxy,
		},
		manifest: append(metrics, proxy),
		metrics:  metrics,
		hooks:    []lineRule{{chartHook, regexp.MustCompile(`["']?\bhelm\.sh/hook["']?:\s*["']?(?:pre|post)-\w+`), nil}},
	}
}

// noInput tells whether a change of an environment variable starts no runs.
func noInput(name string) bool {
	return slices.Contains([]string{"WATCH_NAMESPACE", "POD_NAME", "POD_IP", "NODE_NAME", "HOST_IP"}, name) ||
		strings.HasSuffix(name, "_SERVICE_HOST")
}

// compare checks each line of a text except comments.
func (lineRules) compare(r *reporter, rules []lineRule, text string) {
	n := 0
	for line := range strings.SplitSeq(text, "\n") {
		n++
		if !strings.HasPrefix(strings.TrimSpace(line), "#") {
			r.line(rules, n, line)
		}
	}
}

func (r *reporter) line(rules []lineRule, n int, line string) {
	for _, rule := range rules {
		for _, m := range rule.pattern.FindAllStringSubmatch(line, -1) {
			if rule.applies == nil || rule.applies(m[1]) {
				r.add(rule.rule, n, m[0])
			}
		}
	}
}

// content checks a file of a role, or a playbook.
func (r *reporter) content(text string) {
	r.lines.compare(r, r.lines.content, text)
	inside := "/" + r.file
	if !strings.HasSuffix(inside, ".j2") && !strings.Contains(inside, "/templates/") && !strings.Contains(inside, "/files/") {
		r.lines.compare(r, r.lines.tasks, text)
		r.calls(text)
	}
}

// flagOfEntrypoint matches a flag in an ENTRYPOINT.
var flagOfEntrypoint = regexp.MustCompile(`["'\s\[,](--?([a-z][a-z0-9-]*)(?:=[^"'\s,\]]*)?)`)

// dockerfile checks instructions: a continuation line belongs to the instruction that an
// earlier line begins.
func (r *reporter) dockerfile(text string) {
	r.programs(text)
	instruction, continued, offset := "", false, 0
	for n, line := range strings.Split(text, "\n") {
		start := offset
		offset += len(line) + 1
		trimmed := strings.TrimSpace(line)
		if strings.HasPrefix(trimmed, "#") {
			continue // also within an instruction
		}
		if !continued {
			instruction, _, _ = strings.Cut(trimmed, " ")
			instruction = strings.ToUpper(instruction)
		}
		continued = strings.HasSuffix(trimmed, `\`)
		switch instruction {
		case "FROM":
			r.from(text, line, n+1, start)
		case "RUN":
			r.line(r.lines.run, n+1, line)
		case "ENTRYPOINT", "CMD":
			for _, m := range flagOfEntrypoint.FindAllStringSubmatch(line, -1) {
				r.flag(m[2], m[1], n+1)
			}
		}
	}
}

func (r *reporter) from(text, line string, n, start int) {
	if changed := scaffold.WithImage(line); changed != line {
		rule := baseImage
		if strings.Contains(changed, "rolewright/charts") {
			rule = chartImage
		}
		r.change(r.add(rule, n, line), DropIn, text, edit{start, start + len(line), changed})
	} else if strings.Contains(line, "$") {
		r.add(unnamedImage, n, line)
	}
}

// flag checks a flag of the operator.
func (r *reporter) flag(name, text string, line int) {
	_, value, _ := strings.Cut(text, "=")
	switch period, err := time.ParseDuration(value); {
	case !r.KnownFlag(name):
		r.add(unknownFlag, line, text)
	case name == "reconcile-period" && err == nil && period == 0:
		r.add(restart, line, text)
	}
}

func (r *reporter) makefile(text string) {
	offset := 0
	for n, line := range strings.Split(text, "\n") {
		if changed := scaffold.WithProgram(line); changed != line {
			r.change(r.add(runTarget, n+1, line), DropIn, text, edit{offset, offset + len(line), changed})
		}
		offset += len(line) + 1
	}
}
