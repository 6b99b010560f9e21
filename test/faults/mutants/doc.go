// Command mutants measures the fault campaign (package campaign) and its checks
// (package history). It builds the operator with one seeded bug at a time and
// carries out the campaign's plans, each once, until one finds a violation that the
// operator without the bug does not have, and finds the same invariant violated again
// in one of two further passes. Each bug is a patch in testdata. The tree
// is never changed: the compiler reads the patched files from elsewhere (go build
// -overlay). Patches that no longer apply are listed at the end.
//
// The bugs are bugs that ansible-operator has, or that the literature reports of
// controllers: they believe a stale or intermediate state, miss what they did
// not observe, keep or drop what a crash leaves behind, or trust what they should
// prove.
package main
