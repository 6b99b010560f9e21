// Command mutants measures the fault campaign (package campaign) and its checks
// (package history): it builds the operator with one seeded bug at a time and
// carries out the campaign's plans, each once, until one finds a violation that the
// operator without the bug does not have. Each bug is a patch in testdata. The tree
// is never changed: the compiler reads the patched files from elsewhere (go build
// -overlay). Patches that no longer apply are listed at the end.
//
// A bug is one that ansible-operator has, or one that the literature says
// controllers have: it believes a stale or intermediate state, misses what it did
// not observe, keeps or drops what a crash leaves behind, trusts what it should
// prove.
package main
