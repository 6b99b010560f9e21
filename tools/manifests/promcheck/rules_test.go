package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/promqltest"
)

const rulesFile = "../../../config/prometheus/rules.yaml"

// alerts returns the alerting rules by name.
func alerts(t *testing.T) map[string]rulefmt.Rule {
	t.Helper()
	groups, err := readRules(rulesFile)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]rulefmt.Rule{}
	for _, group := range groups.Groups {
		for _, rule := range group.Rules {
			if rule.Alert != "" {
				found[rule.Alert] = rule
			}
		}
	}
	return found
}

// Each alert fires when it should, and not in similar cases. A series without a job belongs to this operator. Series have
// one value per minute, and last two hours unless they have more values.
func TestAlerts_FireWhenTheyShould(t *testing.T) {
	tests := map[string]struct{ fire, quiet map[string]string }{
		"RolewrightDown": {
			map[string]string{"no target": `up{job="other"} 1x120`, "dead": `up 0x120`},
			map[string]string{"alive": `up 1x120`},
		},
		"RolewrightRestarts": {
			map[string]string{"four in an hour": "process_start_time_seconds 0x70 1x9 2x9 3x9 4x19"},
			map[string]string{"an update": "process_start_time_seconds{pod=\"a\"} 0x80\nprocess_start_time_seconds{pod=\"b\"} _x80 1x39", "one": "process_start_time_seconds 0x100 1x19"},
		},
		"RolewrightScrapeFailing": {
			map[string]string{"one of two": "up{pod=\"a\"} 1x120\nup{pod=\"b\"} 0x120"},
			map[string]string{"both": "up{pod=\"a\"} 1x120\nup{pod=\"b\"} 1x120", "another's": `up{job="other"} 0x120`},
		},
		"RolewrightNoLeader": {
			map[string]string{"none of two": "leader_election_master_status{pod=\"a\"} 0x120\nleader_election_master_status{pod=\"b\"} 0x120"},
			map[string]string{"one of two": "leader_election_master_status{pod=\"a\"} 0x120\nleader_election_master_status{pod=\"b\"} 1x120"},
		},
		"RolewrightKindNotServed": {
			map[string]string{
				"":                    `rolewright_kind_ready{kind="A"} 0x120`,
				"one of two replicas": "rolewright_kind_ready{kind=\"A\",pod=\"a\"} 1x120\nrolewright_shards_held{pod=\"a\"} 4x120\nrolewright_kind_ready{kind=\"A\",pod=\"b\"} 0x120\nrolewright_shards_held{pod=\"b\"} 4x120",
			},
			map[string]string{
				"":                 `rolewright_kind_ready{kind="A"} 1x120`,
				"one without work": "rolewright_kind_ready{kind=\"A\",pod=\"a\"} 1x120\nrolewright_shards_held{pod=\"a\"} 8x120\nrolewright_kind_ready{kind=\"A\",pod=\"b\"} 0x120\nrolewright_shards_held{pod=\"b\"} 0x120",
				"a standby":        "rolewright_kind_ready{kind=\"A\",pod=\"a\"} 1x120\nrolewright_kind_ready{kind=\"A\",pod=\"b\"} 0x120",
			},
		},
		"RolewrightReferencesUnwatched": {
			map[string]string{"": `rolewright_references_unwatched{kind="A",resource="secrets"} 1x120`},
			map[string]string{"": `rolewright_references_unwatched{kind="A",resource="secrets"} 0x120`},
		},
		"RolewrightQueueOld": {
			map[string]string{"an hour": `rolewright_queue_oldest_seconds{kind="A"} 3600x120`},
			map[string]string{"a minute": `rolewright_queue_oldest_seconds{kind="A"} 60x120`},
		},
		"RolewrightRolloutStopped": {
			map[string]string{"one kind": `rolewright_rollout_stopped{kind="A"} 1x120`},
			map[string]string{"none": `rolewright_rollout_stopped{kind="A"} 0x120`},
		},
		"RolewrightRunsFail": {
			map[string]string{"two of three": "rolewright_runs_total{kind=\"A\",reason=\"Succeeded\"} 0+1x120\nrolewright_runs_total{kind=\"A\",reason=\"TaskFailed\"} 0+2x120"},
			map[string]string{
				"one of three": "rolewright_runs_total{kind=\"A\",reason=\"Succeeded\"} 0+2x120\nrolewright_runs_total{kind=\"A\",reason=\"TaskFailed\"} 0+1x120",
				"waiting":      "rolewright_runs_total{kind=\"A\",reason=\"NotYet\"} 0+9x120",
				"three in all": "rolewright_runs_total{kind=\"A\",reason=\"TaskFailed\"} 0x117 1 2 3",
				"interrupted":  "rolewright_runs_total{kind=\"A\",reason=\"Succeeded\"} 0+1x120\nrolewright_runs_total{kind=\"A\",reason=\"Interrupted\"} 0+9x120\nrolewright_runs_total{kind=\"A\",reason=\"Disrupted\"} 0+9x120",
			},
		},
		"RolewrightLoop": {
			map[string]string{"two": `rolewright_loops_total{kind="A"} 0x100 1 2x18`},
			map[string]string{"none": `rolewright_loops_total{kind="A"} 0x120`},
		},
		"RolewrightDrift": {
			map[string]string{"two": `rolewright_drifted{kind="A"} 2x120`},
			map[string]string{"none": `rolewright_drifted{kind="A"} 0x120`, "for a while": `rolewright_drifted{kind="A"} 0x80 1x10 0x30`},
		},
		"RolewrightRunsLost": {
			map[string]string{
				"one":                     `rolewright_runs_lost_total{kind="A"} 0x100 1x19`,
				"before the first scrape": "rolewright_runs_lost_total{kind=\"A\"} _x110 1x9\nprocess_start_time_seconds _x110 6600x9",
				"by a leader before":      "rolewright_runs_lost_total{kind=\"A\"} _x110 1x9\nprocess_start_time_seconds 0x120",
				"with each restart":       "rolewright_runs_lost_total{kind=\"A\"} 1x120\nprocess_start_time_seconds 0x110 6600x9",
			},
			map[string]string{
				"none":     "rolewright_runs_lost_total{kind=\"A\"} 0x120\nprocess_start_time_seconds 6600x120",
				"long ago": "rolewright_runs_lost_total{kind=\"A\"} 1x120\nprocess_start_time_seconds 0x120",
			},
		},
		"RolewrightShardsNotHeld": {
			map[string]string{"one of eight": "rolewright_shards{pod=\"a\"} 8x120\nrolewright_shards_held{pod=\"a\"} 7x120\nrolewright_shards{pod=\"b\"} 8x120\nrolewright_shards_held{pod=\"b\"} 0x120"},
			map[string]string{
				"all":         "rolewright_shards{pod=\"a\"} 8x120\nrolewright_shards_held{pod=\"a\"} 5x120\nrolewright_shards{pod=\"b\"} 8x120\nrolewright_shards_held{pod=\"b\"} 3x120",
				"a take-over": "rolewright_shards{pod=\"a\"} 8x120\nrolewright_shards_held{pod=\"a\"} 8x60 4x4 8x54",
			},
		},
		"RolewrightRunsInterrupted": {
			map[string]string{"one in ten minutes": `rolewright_runs_total{kind="A",reason="Disrupted",cause="interrupted"} 0+0.1x120`},
			map[string]string{
				"a drained node": `rolewright_runs_total{kind="A",reason="Disrupted",cause="created"} 0x100 30x19`,
				"a restart":      `rolewright_runs_total{kind="A",reason="Interrupted"} 0+1x120`,
			},
		},
		"RolewrightRunStuck": {
			map[string]string{"three hours": `rolewright_run_oldest_seconds{kind="A"} 10800x120`},
			map[string]string{"an hour": `rolewright_run_oldest_seconds{kind="A"} 3600x120`},
		},
		"RolewrightPodWaits": {
			map[string]string{"half an hour": `rolewright_pod_wait_oldest_seconds{kind="A"} 1800x120`},
			map[string]string{"many for a minute": `rolewright_pod_wait_oldest_seconds{kind="A"} 60x120`, "an autoscaler": `rolewright_pod_wait_oldest_seconds{kind="A"} 0x100 0+60x12 0x7`},
		},
		"RolewrightFinalizerStuck": {
			map[string]string{"an hour": `rolewright_deletion_oldest_seconds{kind="A"} 3600x120`},
			map[string]string{"a minute": `rolewright_deletion_oldest_seconds{kind="A"} 60x120`},
		},
		"RolewrightDiskNearlyFull": {
			map[string]string{"one of two Pods": "rolewright_disk_free_bytes{pod=\"a\"} 5x120\nrolewright_disk_size_bytes{pod=\"a\"} 100x120\nrolewright_disk_free_bytes{pod=\"b\"} 90x120\nrolewright_disk_size_bytes{pod=\"b\"} 100x120"},
			map[string]string{"a quarter free": "rolewright_disk_free_bytes 25x120\nrolewright_disk_size_bytes 100x120"},
		},
		"RolewrightNoSpace": {
			map[string]string{"again": `rolewright_runs_total{reason="NoSpace"} 1x115 2x4`, "for the first time": `rolewright_runs_total{reason="ArtifactsTooLarge"} _x115 1x4`},
			map[string]string{"long ago": `rolewright_runs_total{reason="NoSpace"} 1x120`, "other failures": `rolewright_runs_total{reason="TaskFailed"} 0+1x120`},
		},
		"RolewrightWarmFellBack": {
			map[string]string{
				"":                    "rolewright_warm_ready 0x120\nrolewright_runs_by_executor_total{executor=\"runner\"} 0+1x120",
				"one of two replicas": "rolewright_warm_ready{pod=\"a\"} 0x120\nrolewright_runs_by_executor_total{executor=\"runner\",pod=\"a\"} 0+1x120\nrolewright_warm_ready{pod=\"b\"} 1x120\nrolewright_runs_by_executor_total{executor=\"warm\",pod=\"b\"} 0+1x120",
			},
			map[string]string{
				"nothing runs":           "rolewright_warm_ready 0x120\nrolewright_runs_by_executor_total{executor=\"runner\"} 5x120",
				"a leader with a server": "rolewright_warm_ready{pod=\"a\"} 0x120\nrolewright_warm_ready{pod=\"b\"} 1x120\nrolewright_runs_by_executor_total{executor=\"runner\",pod=\"b\"} 0+1x120",
				"none is wanted":         `rolewright_runs_by_executor_total{executor="runner"} 0+1x120`,
			},
		},
		"RolewrightContentBroken": {
			map[string]string{"one of two Pods": "rolewright_content_broken{pod=\"a\"} 1x120\nrolewright_content_broken{pod=\"b\"} 0x120"},
			map[string]string{"for a minute": "rolewright_content_broken{pod=\"a\"} 0x60 1x3 0x57"},
		},
		"RolewrightWebhooksFail": {
			map[string]string{"": `rolewright_webhook_duration_seconds_count{kind="A",webhook="validate",result="failed"} 0+1x120`},
			map[string]string{
				"long ago": `rolewright_webhook_duration_seconds_count{kind="A",webhook="validate",result="failed"} 7x120`,
				"refused":  `rolewright_webhook_duration_seconds_count{kind="A",webhook="validate",result="refused"} 0+1x120`,
			},
		},
		"RolewrightStatusWritesFail": {
			map[string]string{"": `rolewright_status_writes_total{kind="A",result="failed"} 0+1x120`},
			map[string]string{"": `rolewright_status_writes_total{kind="A",result="failed"} 7x120`},
		},
	}
	for name, rule := range alerts(t) {
		tt, ok := tests[name]
		if !ok {
			t.Errorf("alert %s has no test", name)
		}
		for expected, cases := range map[bool]map[string]string{true: tt.fire, false: tt.quiet} {
			if len(cases) == 0 {
				t.Errorf("alert %s has no test that it is %v", name, expected)
			}
			for what, series := range cases {
				t.Run(name+"/"+what, func(t *testing.T) {
					if got := fires(t, rule.Expr, series); got != expected {
						t.Errorf("fires = %v, want %v with\n%s", got, expected, series)
					}
				})
			}
		}
		delete(tests, name)
	}
	for name := range tests {
		t.Errorf("there is no alert %s", name)
	}
}

// fires reports whether an expression returns any series.
func fires(t *testing.T, expr, series string) bool {
	t.Helper()
	var script strings.Builder
	script.WriteString("load 1m\n")
	for line := range strings.SplitSeq(series, "\n") {
		name, values, _ := strings.Cut(line, " ")
		name, labels, _ := strings.Cut(strings.TrimSuffix(name, "}"), "{")
		if !strings.Contains(labels, "job=") {
			labels = strings.TrimSuffix(`job="memcached-operator",namespace="n",`+labels, ",")
		}
		script.WriteString("  " + name + "{" + labels + "} " + values + "\n")
	}
	s := &samples{engine: promqltest.NewTestEngine(t, false, 0, promqltest.DefaultMaxSamplesPerQuery), end: time.Unix(0, 0).Add(2 * time.Hour)}
	loaded := promqltest.LoadedStorage(t, script.String())
	defer loaded.Close()
	s.queryable = loaded
	vector, err := s.ask(expr)
	if err != nil {
		t.Fatal(err)
	}
	return len(vector) > 0
}

// Each alert has a runbook, and the texts that the person on call needs.
func TestAlerts_AreExplained(t *testing.T) {
	for name, rule := range alerts(t) {
		page := "docs/runbooks/" + name + ".md"
		if _, err := os.Stat("../../../" + page); err != nil || rule.Annotations["runbook_url"] != "https://github.com/rolewright/rolewright/blob/main/"+page {
			t.Errorf("alert %s needs the page %s and its address as runbook_url: %v", name, page, err)
		}
		if rule.Annotations["summary"] == "" || rule.Annotations["description"] == "" || rule.Labels["severity"] == "" {
			t.Errorf("alert %s needs a summary, a description and a severity", name)
		}
	}
}
