package main

import "slices"

// mutants are all seeded bugs.
func mutants() []mutant {
	return slices.Concat(identityBugs(), verdictBugs(), recordBugs(), processBugs(), secretBugs())
}

// secretBugs tell what is not to be told.
func secretBugs() []mutant {
	return []mutant{
		{
			Name: "declared-secrets-are-not-known", Origin: "I13: the incumbent masks nothing",
			Edits: []edit{
				{"controller/masking.go", "\t\t\tm.Add(ctx, valuesAt(nil, tree, strings.Split(path, \".\"))...)\n", "\t\t\t_ = valuesAt(nil, tree, strings.Split(path, \".\"))\n"},
			},
			Plans: []string{"create", "failing"},
		},
	}
}
