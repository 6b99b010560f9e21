package main

// identityBugs mix up objects, generations and views of the cluster.
func identityBugs() []mutant { //nolint:funlen // a table
	return []mutant{
		{
			Name: "status-written-to-a-successor", Origin: "F8: the result of a deleted object stands on the new one of its name",
			Edits: []edit{
				{"controller/statuswriter.go", "\tif next.GetUID() != uid {\n", "\tif false && next.GetUID() != uid {\n"},
			},
			Plans: []string{"recreate-plain", "recreate-plain/plains.status"},
		},
		{
			Name: "status-without-optimistic-lock", Origin: "F8, unobserved state",
			Edits: []edit{
				{"controller/statuswriter.go", "client.MergeFromWithOptions(obj.DeepCopy(), client.MergeFromWithOptimisticLock{})", "client.MergeFrom(obj.DeepCopy())"},
			},
			Plans: []string{"recreate-plain", "change-during-run", "recreate-plain/plains.status"},
		},
		{
			Name: "result-names-the-live-generation", Origin: "F8: no generation of the run is kept; stale state",
			Edits: []edit{
				{"controller/run.go", "return status.Conclude(st, run, next, r.now())", "run.Generation = s.object.GetGeneration()\n\t\t\treturn status.Conclude(st, run, next, r.now())"},
			},
			Plans: []string{"change-during-run", "back-during-run"},
		},
		{
			Name: "observed-generation-of-the-live-object", Origin: "incumbent W40; stale state",
			Edits: []edit{
				{"controller/run.go", "return status.Conclude(st, run, next, r.now())", "after := status.Conclude(st, run, next, r.now())\n\t\t\tafter[\"observedGeneration\"] = s.object.GetGeneration()\n\t\t\treturn after"},
			},
			Plans: []string{"change-during-run", "back-during-run"},
		},
		{
			Name: "fingerprint-of-the-object-at-the-end", Origin: "G.4: a change during the run is lost; intermediate state",
			Edits: []edit{
				{"controller/run.go", "\trun := r.outcome(s)\n", "\tif r.readLive(ctx, s) == nil {\n\t\tif live, err := r.content.fingerprint(ctx, s); err == nil {\n\t\t\ts.fingerprint = live\n\t\t}\n\t}\n\trun := r.outcome(s)\n"},
			},
			Plans: []string{"change-during-run"},
		},
		{
			Name: "change-after-success-is-ignored", Origin: "level-triggering: only events that are seen count",
			Edits: []edit{
				{"controller/schedule.go", "\tcase last.Fingerprint != s.fingerprint:\n", "\tcase last.Fingerprint != s.fingerprint && last.Result == status.Failed:\n"},
			},
			Plans: []string{"change"},
		},
		{
			Name: "success-covers-any-generation", Origin: "stale state: observedGeneration without a run",
			Edits: []edit{
				{"controller/schedule.go", "\tcase last.Fingerprint != s.fingerprint:\n", "\tcase last.Fingerprint != s.fingerprint && last.Generation+1 < s.generation:\n"},
			},
			Plans: []string{"change", "change-during-run"},
		},
		{
			Name: "memory-is-by-name", Origin: "F8: a recreated object is taken for the old one; unobserved state",
			Edits: []edit{
				{"controller/reconciler.go", "\tif m != nil && m.uid == obj.GetUID() {\n\t\treturn m, \"\"", "\tif m != nil {\n\t\treturn m, \"\""},
			},
			Plans: []string{"recreate-plain/plains.status-o-0-2-error", "recreate-plain/plains.status-o-0-2", "recreate-plain/plains.status"},
		},
		{
			Name: "finalizer-proof-is-by-name", Origin: "F8 for finalizers; unobserved state",
			Edits: []edit{
				{"controller/reconciler.go", "\tm = &memory{uid: obj.GetUID()}\n", "\tm = &memory{uid: obj.GetUID(), finalized: m != nil && m.finalized}\n"},
				{"controller/run.go", "\tm.finalized = s.deleting && run.Result == status.Succeeded && run.RequeueAfter == 0\n", "\tm.finalized = m.finalized || s.deleting && run.Result == status.Succeeded && run.RequeueAfter == 0\n"},
				{"controller/run.go", "\tif m.finalized {\n\t\treturn done(), r.release(ctx, s)", "\tif m.finalized && s.deleting {\n\t\treturn done(), r.release(ctx, s)"},
			},
			Plans: []string{"recreate-again/deleted-things-o-0-1-hold-watch", "recreate-again/deleted-things-o-0", "recreate-again"},
		},
		{
			Name: "lists-are-believed-at-start", Origin: "stale state: a restarted operator sees an older list (kubernetes#59848)",
			Edits: []edit{
				{"controller/phases.go", "\t\ts.memory.recall(r.record(s.object))\n\t\tif s.memory.lost != nil {\n\t\t\treturn again(), nil\n\t\t}\n", "\t\ts.memory.ran = true\n"},
			},
			Plans: []string{"fixed/create-killed-after-run-and-stale", "fixed/change-during-run-recorded-and-stale"},
		},
		{
			Name: "lost-runs-are-believed-from-the-cache", Origin: "stale state",
			Edits: []edit{
				{"controller/lost.go", "\ts.memory.recall(r.record(s.object))\n\tlost := s.memory.lost\n", "\tlost := s.memory.lost\n"},
			},
			Plans: []string{"fixed/change-during-run-recorded-and-stale", "change-during-run/restart-stale", "change/restart-stale", "ten/restart-stale"},
		},
		{
			Name: "deletion-is-not-looked-at-live", Origin: "W14: deletion seen live but not in the cache",
			Edits: []edit{
				{"controller/phases.go", "; deleting != s.deleting || deleting && !r.hasFinalizer(s.object) {", "; deleting && !r.hasFinalizer(s.object) {"},
				{"controller/phases.go", " ||\n\t\t(s.object.GetDeletionTimestamp() != nil) != s.deleting {", " {"},
			},
			Plans: []string{"delete-failing/modified-things-o-0-1-hold-watch", "delete-failing/hold-watch", "delete-failing/restart-stale", "delete-long-run/hold-watch", "delete/restart-stale"},
		},
		{
			Name: "every-status-write-is-a-change", Origin: "B.8, B.9: the operator triggers itself",
			Edits: []edit{
				{"controller/fingerprint/object.go", "\tkept := map[string]any{\"uid\": meta[\"uid\"]}\n", "\tkept := map[string]any{\"uid\": meta[\"uid\"], \"resourceVersion\": meta[\"resourceVersion\"]}\n"},
				{"controller/predicates.go", "\t\t\treturn was.GetUID() != is.GetUID() ||\n", "\t\t\treturn was.GetResourceVersion() != is.GetResourceVersion() || was.GetUID() != is.GetUID() ||\n"},
			},
			Plans: []string{"create"},
		},
		{
			Name: "objects-are-not-owned", Origin: "W36: no owner reference",
			Edits: []edit{
				{"internal/proxy/write.go", "\tif x.s.Inject && x.ownable(r) {\n", "\tif x.s.Inject && x.info.Verb == \"create\" && x.ownable(r) {\n"},
			},
			Plans: []string{"create"},
		},
	}
}
