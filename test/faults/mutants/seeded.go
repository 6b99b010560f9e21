package main

import "slices"

// mutants are all seeded bugs.
func mutants() []mutant {
	return slices.Concat(identityBugs(), verdictBugs(), recordBugs(), processBugs())
}
