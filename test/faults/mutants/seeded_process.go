package main

// processBugs let processes, tokens and files outlive what they are for.
func processBugs() []mutant { //nolint:funlen // a table
	return []mutant{
		{
			Name: "requeue-ends-the-reconcile", Origin: "F6, W4: the playbook goes on while the next one starts",
			Edits: []edit{
				{"controller/run.go", "\ts.result, s.err = r.execute(ctx, req)\n", "\tended := make(chan struct{})\n\tvar result runner.Result\n\tvar runErr error\n\tgo func() {\n\t\tdefer close(ended)\n\t\tresult, runErr = r.execute(context.WithoutCancel(ctx), req)\n\t}()\n\tselect {\n\tcase <-ended:\n\t\ts.result, s.err = result, runErr\n\tcase <-time.After(400 * time.Millisecond):\n\t\ts.err = ErrObjectChanged\n\t}\n"},
				{"controller/run.go", "\t\"path/filepath\"\n", "\t\"path/filepath\"\n\t\"time\"\n"},
			},
			Plans: []string{"change-during-run", "daemons"},
		},
		{
			Name: "daemons-are-left", Origin: "F10, E.5: only the process itself is waited for",
			Edits: []edit{
				{"runner/supervise/supervise.go", "\texit.Killed, err = t.kill()\n", "\t_ = t\n"},
			},
			Plans: []string{"daemons"},
		},
		{
			Name: "stubborn-runs-are-not-killed", Origin: "F10, E.6: SIGTERM is ignored, and neither guard kills",
			Edits: []edit{
				{"runner/supervise/supervise.go", "\tcmd.WaitDelay = c.grace()\n", ""},
				{"runner/supervise/supervisor.go", "giveUp = time.After(c.grace() + patience)", "giveUp = nil"},
			},
			Plans: []string{"timeout", "delete-long-run", "daemons/crash-after", "daemons/crash-before", "daemons"},
		},
		{
			Name: "runs-do-not-die-with-the-operator", Origin: "F10, A.6: neither parent-death signal nor heartbeat, and nobody reaps",
			Edits: []edit{
				{"runner/supervise/supervisor.go", "SysProcAttr: &syscall.SysProcAttr{Setsid: true, Pdeathsig: unix.SIGTERM},", "SysProcAttr: &syscall.SysProcAttr{Setsid: true, Pdeathsig: 0 * unix.SIGTERM},"},
				{"runner/supervise/main.go", "\tgo listen(in, cancel)\n", "\t_ = listen\n"},
				{"controller/lost.go", "\t\tif err := r.opts.Runner.Reap(lost.ID); err != nil {\n\t\t\treturn nil, err\n\t\t}\n", ""},
			},
			Plans: []string{"down", "leader-crash", "matrix/supervising.started-kill-1", "matrix/supervisor.ordered-kill-1", "change-during-run/crash-after"},
		},
		{
			Name: "orphans-are-waited-out", Origin: "F10: neither parent-death signal nor heartbeat",
			Edits: []edit{
				{"runner/supervise/supervisor.go", "SysProcAttr: &syscall.SysProcAttr{Setsid: true, Pdeathsig: unix.SIGTERM},", "SysProcAttr: &syscall.SysProcAttr{Setsid: true, Pdeathsig: 0 * unix.SIGTERM},"},
				{"runner/supervise/main.go", "\tgo listen(in, cancel)\n", "\t_ = listen\n"},
			},
			Plans: []string{"down"},
		},
		{
			Name: "deletion-does-not-cancel", Origin: "W28, sdk#1882",
			Edits: []edit{
				{"controller/access.go", "\t\t\t\trun.stop(ErrObjectDeleted)\n", "\t\t\t\t_ = ErrObjectDeleted\n"},
			},
			Plans: []string{"delete-long-run", "delete-during-run"},
		},
		{
			Name: "gone-objects-are-run-on", Origin: "W28, G.2: the run of an object that is gone goes on",
			Edits: []edit{
				{"controller/access.go", "\tif run, ok := r.running(uid); ok {\n\t\trun.stop(ErrObjectGone)\n\t}\n", "\t_ = ErrObjectGone\n"},
			},
			Plans: []string{"delete-long-run", "delete-plain", "recreate-plain"},
		},
		{
			Name: "loss-of-the-lease-is-not-heard", Origin: "D.1: leader election without fencing",
			Edits: []edit{
				{"controller/run.go", "\t\tUntil:   r.opts.Leads,\n", ""},
				{"cmd/rolewright/lease.go", "over := !l.until.IsZero() && now.After(l.until)", "over := !l.until.IsZero() && now.After(l.until.Add(time.Hour))"},
				{"controller/lifetime.go", "\t\tcontext.AfterFunc(r.set.runs, func() { cancel(context.Cause(r.set.runs)) }),\n", ""},
			},
			Plans: []string{"matrix/privatedir.renamed-stop-2", "matrix/privatedir.before-rename-stop-2", "matrix/begin.after-write-stop-2", "matrix/run.admitted-stop-2", "elected/block"},
		},
		{
			Name: "a-lease-is-freed-whoever-holds-it", Origin: "client-go's elector after it was frozen; stale state",
			Edits: []edit{
				{"cmd/rolewright/lease.go", "holder != l.Identity() {", "holder == \"nobody\" {"},
			},
			Plans: []string{
				"matrix/reconcile.opened-stop-2", "matrix/finalizer.before-patch-stop-2", "matrix/supervisor.ordered-stop-2", "matrix/lost.before-reap-stop-2",
				"matrix/reconcile.dequeued-stop-2", "matrix/finalizer.after-patch-stop-2", "matrix/begin.before-read-stop-2", "matrix/begin.after-read-stop-2",
				"matrix/begin.before-write-stop-2", "matrix/run.admitted-stop-2", "matrix/privatedir.made-stop-2", "matrix/run.ended-stop-2",
			},
			Elsewhere: "cmd/rolewright: TestLease_GivesUpNoneButItsOwn",
		},
		{
			Name: "writes-are-not-fenced", Origin: "R16, F9: a write is forwarded without the lease",
			Edits: []edit{
				{"controller/run.go", "\t\tUntil:   r.opts.Leads,\n", ""},
				{"cmd/rolewright/lease.go", "over := !l.until.IsZero() && now.After(l.until)", "over := !l.until.IsZero() && now.After(l.until.Add(time.Hour))"},
				{"internal/proxy/exchange.go", "\tif why == \"\" && x.p.opts.MayWrite != nil {\n", "\tif why == \"\" && x.p.opts.MayWrite != nil && x.p.opts.Port < 0 {\n"},
			},
			Plans:     []string{"matrix/privatedir.renamed-stop-2", "matrix/privatedir.before-rename-stop-2", "matrix/begin.after-write-stop-2", "matrix/run.admitted-stop-2", "elected/block"},
			Elsewhere: "internal/proxy: fence tests",
		},
		{
			Name: "tokens-are-not-revoked", Origin: "F9, W21: a token of a finished run",
			Edits: []edit{
				{"internal/proxy/grant.go", "\tdelete(a.p.sessions.byToken, sha256.Sum256([]byte(a.token)))\n\ta.p.sessions.mu.Unlock()\n\ta.session.close()\n", "\ta.p.sessions.mu.Unlock()\n"},
			},
			Plans:     []string{"stolen-token"},
			Elsewhere: "internal/proxy: identity tests",
		},
		{
			Name: "directories-of-deleted-objects-stay", Origin: "W23, aop#47, aop#231",
			Edits: []edit{
				{"controller/reconciler.go", "\tif err != nil || obj.GetUID() != m.uid {\n", "\tif false && obj.GetUID() != m.uid {\n"},
				{"controller/sweep.go", "\t\tif living[t.UID] || !r.watchesNamespace(t.Namespace) {\n", "\t\tif t.UID != \"\" || !r.watchesNamespace(t.Namespace) {\n"},
				{"controller/reconciler.go", "\tif m != nil {\n\t\tstale = m.uid\n\t}\n", ""},
			},
			Plans: []string{"delete-plain", "delete", "deleted-while-down"},
		},
		{
			Name: "sweep-takes-the-living", Origin: "A.11: the directory of a live run is deleted",
			Edits: []edit{
				{"controller/sweep.go", "\t\tif living[t.UID] || !r.watchesNamespace(t.Namespace) {\n", "\t\tif !r.watchesNamespace(t.Namespace) {\n"},
			},
			Plans: []string{"restart", "matrix/conclude.judged-kill-1"},
		},
	}
}
