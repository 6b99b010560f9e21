package main

// recordBugs lose or repeat what a crash, a conflict or an error comes between.
func recordBugs() []mutant { //nolint:funlen // a table
	return []mutant{
		{
			Name: "run-starts-before-its-record", Origin: "R11: no write-ahead record; intermediate state",
			Edits: []edit{
				{"controller/phases.go", "\terr = r.writeStatus(ctx, s.object, metrics.MomentStart, func", "\t_ = func"},
				{"controller/phases.go", "\t\treturn status.Begin(st, s.active, s.deleting, s.active.Started)\n\t})\n", "\t\treturn status.Begin(st, s.active, s.deleting, s.active.Started)\n\t}\n\t_ = metrics.MomentStart\n"},
			},
			Plans: []string{"change-during-run/configmaps-o-0-1-crash-after", "change-during-run/configmaps-o-0-1-crash", "leader-crash", "matrix/supervising.started-kill-1", "matrix/run.ended-kill-1"},
		},
		{
			Name: "active-run-stays", Origin: "F7: Running for good",
			Edits: []edit{
				{"controller/status/status.go", "\t\tdelete(ansible, partActive) // another's is not ours to end\n", "\t\t_ = active // another's is not ours to end\n"},
			},
			Plans: []string{"create"},
		},
		{
			Name: "lost-runs-are-not-settled", Origin: "A.3: the record of a dead process is overwritten",
			Edits: []edit{
				{"controller/lost.go", "\tif s.memory.lost == nil {\n", "\tif s.memory.lost == nil || s.memory.lost.ID != \"\" {\n"},
				{"controller/phases.go", "\t\tif s.memory.lost != nil {\n\t\t\treturn again(), nil\n\t\t}\n", ""},
			},
			Plans: []string{"change-during-run/configmaps-o-0-1-crash-after", "change-during-run/configmaps-o-0-1-crash", "leader-crash", "matrix/supervising.started-kill-1", "matrix/begin.after-write-kill-1"},
		},
		{
			Name: "lost-runs-are-not-repeated", Origin: "A.6",
			Edits: []edit{
				{"controller/schedule.go", "\t\treturn plan{cause: s.ifDeleting(causeInterrupted)}\n", "\t\treturn plan{}\n"},
			},
			Plans: []string{"change-during-run/configmaps-o-0-1-crash-after", "change-during-run/configmaps-o-0-1-crash", "leader-crash", "matrix/supervising.started-kill-1", "matrix/begin.after-write-kill-1"},
		},
		{
			Name: "ends-on-disk-are-not-looked-for", Origin: "F7, G10: a finished result is lost by a crash",
			Edits: []edit{
				{"controller/lost.go", "s.deleting, *lost); ok {", "s.deleting, *lost); ok && false {"},
				{"controller/lost.go", "\tresult, err := r.opts.Runner.Recover(ctx, dir, lost.ID, r.masker(mask))\n\tif err != nil {\n", "\tresult, err := r.opts.Runner.Recover(ctx, dir, lost.ID, r.masker(mask))\n\tif err == nil {\n\t\terr = runner.ErrNoRecord\n\t}\n\tif err != nil {\n"},
			},
			Plans: []string{"matrix/conclude.judged-kill-1", "matrix/run.ended-kill-1", "matrix/lost.found-kill-1"},
		},
		{
			Name: "conflict-drops-the-result", Origin: "C.1, W39: status 409",
			Edits: []edit{
				{"controller/statuswriter.go", "clientretry.OnError(clientretry.DefaultBackoff, apierrors.IsConflict, func() error {", "clientretry.OnError(clientretry.DefaultBackoff, func(error) bool { return false }, func() error {"},
				{"controller/run.go", "\tif final(err) {\n", "\tif final(err) || moved(err) {\n"},
				{"controller/run.go", "func contentOf(c watches.Content)", "func moved(err error) bool { return client.IgnoreNotFound(err) != nil && strings.Contains(err.Error(), \"the object has been modified\") }\n\nfunc contentOf(c watches.Content)"},
				{"controller/run.go", "\t\"path/filepath\"\n", "\t\"path/filepath\"\n\t\"strings\"\n"},
			},
			Plans: []string{"change-during-run", "create/things.status-o-0-2-conflict", "change/things.status-o-0-2-conflict"},
		},
		{
			Name: "failed-write-repeats-the-run", Origin: "W39: status 409 re-runs the play",
			Edits: []edit{
				{"controller/run.go", "\t\treturn &ctrl.Result{RequeueAfter: r.opts.RetryMin}, nil\n\t}\n\tm.unwritten = nil\n", "\t\tm.last, m.unwritten = nil, nil\n\t\treturn &ctrl.Result{RequeueAfter: r.opts.RetryMin}, nil\n\t}\n\tm.unwritten = nil\n"},
			},
			Plans: []string{"create/things.status-o-0-2-error", "create/things.status-o-0-2-unavailable", "create/things.status-o-0-2-reset", "create/things.status"},
		},
		{
			Name: "failed-write-drops-the-result", Origin: "C.3: the API server is away at the end of a run",
			Edits: []edit{
				{"controller/run.go", "\t\treturn &ctrl.Result{RequeueAfter: r.opts.RetryMin}, nil\n\t}\n\tm.unwritten = nil\n", "\t\tm.unwritten = nil\n\t\treturn &ctrl.Result{RequeueAfter: r.opts.RetryMin}, nil\n\t}\n\tm.unwritten = nil\n"},
			},
			Plans: []string{"create/things.status-o-0-2-error", "create/things.status-o-0-2-unavailable", "create/things.status"},
		},
		{
			Name: "unwritten-result-is-not-tried-again", Origin: "C.3",
			Edits: []edit{
				{"controller/run.go", "\t\treturn &ctrl.Result{RequeueAfter: r.opts.RetryMin}, nil\n\t}\n\tm.unwritten = nil\n", "\t\treturn done(), nil\n\t}\n\tm.unwritten = nil\n"},
			},
			Plans: []string{"create/things.status-o-0-2-error", "create/things.status-o-0-2-unavailable", "create/things.status"},
		},
		{
			Name: "result-is-written-under-the-context-of-the-shutdown", Origin: "F7: a finished run is lost on SIGTERM, and here on disk too",
			Edits: []edit{
				{"controller/lost.go", "s.deleting, *lost); ok {", "s.deleting, *lost); ok && false {"},
				{"controller/run.go", "context.WithTimeout(context.WithoutCancel(ctx), concludeTimeout)", "context.WithTimeout(ctx, concludeTimeout)"},
				{"controller/lost.go", "\tresult, err := r.opts.Runner.Recover(ctx, dir, lost.ID, r.masker(mask))\n\tif err != nil {\n", "\tresult, err := r.opts.Runner.Recover(ctx, dir, lost.ID, r.masker(mask))\n\tif err == nil {\n\t\terr = runner.ErrNoRecord\n\t}\n\tif err != nil {\n"},
			},
			Plans: []string{"restart", "elected", "leader-change"},
		},
		{
			Name: "finalizer-conflict-ends-the-reconcile", Origin: "C.1",
			Edits: []edit{
				{"controller/phases.go", "\tcase apierrors.IsConflict(err):\n\t\treturn again(), nil\n", "\tcase apierrors.IsConflict(err):\n\t\treturn done(), nil\n"},
			},
			Plans: []string{"create/patch-things-o-0-1-conflict", "create/conflict"},
		},
		{
			Name: "release-is-tried-once", Origin: "C.1, sdk#1503: stuck finalizers",
			Edits: []edit{
				{"controller/phases.go", "\t\treturn fmt.Errorf(\"remove the finalizer: %w\", err)\n", "\t\treturn nil\n"},
			},
			Plans: []string{"delete/patch-things-o-0-2", "finalizer-failing/patch-things-o-0-2"},
		},
		{
			Name: "recorded-finalizer-run-is-believed-and-forgotten", Origin: "R18: a restart between the record and the release",
			Edits: []edit{
				{"controller/schedule.go", "\t\treturn last.Finished, causeDeleted\n", "\t\treturn time.Time{}, \"\"\n"},
			},
			Plans: []string{"matrix/release.before-patch-kill-1", "delete/patch-things-o-0-2-crash-before"},
		},
		{
			Name: "failure-is-not-repeated", Origin: "W3, W39",
			Edits: []edit{
				{"controller/schedule.go", "\t\tdelay, why = max(s.retry.after(last.Attempts), last.RequeueAfter), causeRetry\n", "\t\treturn time.Time{}, \"\"\n"},
			},
			Plans: []string{"delete-failing", "create/configmaps-o-0-1-error", "create/configmaps-o-0-1-reset-before", "create/configmaps"},
		},
		{
			Name: "failure-is-repeated-at-once", Origin: "W39: retries from 5 ms",
			Edits: []edit{
				{"controller/schedule.go", "\t\tdelay, why = max(s.retry.after(last.Attempts), last.RequeueAfter), causeRetry\n", "\t\tdelay, why = max(5*time.Millisecond, last.RequeueAfter), causeRetry\n"},
			},
			Plans: []string{"bad-ends", "finalizer-failing"},
		},
		{
			Name: "requeue-is-forgotten", Origin: "W4, W12",
			Edits: []edit{
				{"controller/outcome.go", "\tif run.RequeueAfter = after; after > 0 {\n", "\tif after > 0 {\n"},
			},
			Plans: []string{"requeue"},
		},
	}
}
