package main

// verdictBugs call a success what is none, or let go what was not cleaned up.
func verdictBugs() []mutant { //nolint:funlen // a table
	return []mutant{
		{
			Name: "success-is-the-absence-of-failures", Origin: "F5, W2: unreachable hosts are a success, the exit code is ignored",
			Edits: []edit{
				{"runner/verdict.go", "\treturn r.ExitCode == 0 && r.Signal == \"\" && r.Status == statusSuccessful &&\n\t\ts.Complete && s.Failures == 0 && s.Unreachable == 0 && !r.noHosts() && !r.noResults()\n", "\treturn s.Complete && s.Failures == 0 && !r.noHosts()\n"},
			},
			Plans: []string{"bad-ends", "finalizer-failing"},
		},
		{
			Name: "exit-code-is-all", Origin: "E.13: rc 0 without stats",
			Edits: []edit{
				{"runner/verdict.go", "\t\ts.Complete && s.Failures == 0 && s.Unreachable == 0 && !r.noHosts() && !r.noResults()\n", "\t\ts.Failures == 0 && s.Unreachable == 0 && !r.noHosts()\n"},
			},
			Plans: []string{"bad-ends"},
		},
		{
			Name: "no-hosts-is-a-success", Origin: "E.13: no host matched",
			Edits: []edit{
				{"runner/verdict.go", " && s.Unreachable == 0 && !r.noHosts() && !r.noResults()\n", " && s.Unreachable == 0\n"},
			},
			Plans: []string{"bad-ends"},
		},
		{
			Name: "crash-is-no-failure", Origin: "W3: a crashed ansible-runner leaves neither exit code nor status",
			Edits: []edit{
				{"runner/verdict.go", "\treturn r.ExitCode == 0 && r.Signal == \"\" && r.Status == statusSuccessful &&\n\t\ts.Complete && s.Failures == 0", "\treturn r.Status != statusFailed &&\n\t\ts.Failures == 0"},
			},
			Plans: []string{"bad-ends"},
		},
		{
			Name: "foreign-events-count", Origin: "F2, W25: CR data forges events",
			Edits: []edit{
				{"runner/jobevent/summary.go", "\treturn uuid == s.PlaybookUUID\n", "\treturn true\n"},
			},
			Plans:     []string{"forged", "bad-ends"},
			Elsewhere: "runner/jobevent: acceptance tests",
		},
		{
			Name: "interrupted-is-a-success", Origin: "F7: what happens to a run at shutdown",
			Edits: []edit{
				{"controller/outcome.go", "\t\trun.Result, run.Reason = status.Interrupted, string(status.Interrupted)\n", "\t\trun.Result, run.Reason = status.Succeeded, string(runner.Succeeded)\n"},
			},
			Plans: []string{"delete-long-run", "recreate", "delete-during-run"},
		},
		{
			Name: "lost-is-a-success", Origin: "A.3, intermediate state: a run that was begun is taken for done",
			Edits: []edit{
				{"controller/lost.go", "\t\tResult: status.Interrupted, Reason: status.ReasonLost, ", "\t\tResult: status.Succeeded, Reason: \"Succeeded\", "},
			},
			Plans: []string{"leader-crash", "matrix/begin.after-write-kill-1", "matrix/supervising.started-kill-1"},
		},
		{
			Name: "timeout-is-a-success", Origin: "W29",
			Edits: []edit{
				{"controller/outcome.go", "\t\trun.Result, run.Reason = status.Failed, status.ReasonTimedOut\n", "\t\trun.Result, run.Reason = status.Succeeded, status.ReasonTimedOut\n"},
			},
			Plans: []string{"timeout"},
		},
		{
			Name: "finalizer-goes-on-failure", Origin: "F5: the finalizer goes although nothing was cleaned up",
			Edits: []edit{
				{"controller/run.go", "\tm.finalized = s.deleting && run.Result == status.Succeeded && run.RequeueAfter == 0\n", "\tm.finalized = s.deleting && run.Result != status.Interrupted\n"},
			},
			Plans: []string{"finalizer-failing"},
		},
		{
			Name: "finalizer-goes-when-unreachable", Origin: "F5, W2, sdk#2546",
			Edits: []edit{
				{"controller/run.go", "\tm.finalized = s.deleting && run.Result == status.Succeeded && run.RequeueAfter == 0\n", "\tm.finalized = s.deleting && (run.Result == status.Succeeded || run.Reason == string(runner.Unreachable))\n"},
				{"controller/run.go", "\ts.result, s.err = r.execute(ctx, req)\n", "\t_ = runner.Unreachable\n\ts.result, s.err = r.execute(ctx, req)\n"},
			},
			Plans: []string{"finalizer-failing"},
		},
		{
			Name: "finalizer-goes-when-its-run-is-lost", Origin: "intermediate state: what was begun is taken for done",
			Edits: []edit{
				{"controller/lost.go", "\ts.memory.last, s.memory.lost = &run, nil\n", "\ts.memory.last, s.memory.lost, s.memory.finalized = &run, nil, s.deleting\n\tif s.deleting {\n\t\treturn again(), nil\n\t}\n"},
			},
			Plans: []string{"delete/things.status-o-0-3-crash-after", "delete/things.status-o-0-3-crash", "delete/things.status"},
		},
		{
			Name: "any-success-finalizes", Origin: "I5: a run of the living object counts",
			Edits: []edit{
				{"controller/phases.go", "\tif s.memory.finalized || !r.hasFinalizer(s.object) {\n", "\tif s.memory.finalized || s.memory.last != nil && s.memory.last.Result == \"Succeeded\" || !r.hasFinalizer(s.object) {\n"},
			},
			Plans: []string{"delete"},
		},
		{
			Name: "finalizer-is-added-after-the-run", Origin: "intermediate state: a crash leaves what nobody cleans up",
			Edits: []edit{
				{"controller/reconciler.go", "{\"lost\", r.settleLost}, {\"finalizer\", r.ensureFinalizer},\n\t\t{\"decide\", r.decide}, {\"begin\", r.begin}, {\"run\", r.run}, {\"conclude\", r.conclude},", "{\"lost\", r.settleLost},\n\t\t{\"decide\", r.decide}, {\"begin\", r.begin}, {\"run\", r.run}, {\"finalizer\", r.ensureFinalizer}, {\"conclude\", r.conclude},"},
			},
			Plans: []string{"create"},
		},
	}
}
