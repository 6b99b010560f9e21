// Command mutants measures the campaign (package campaign) and its checks
// (package history): it builds the operator with one seeded bug at a time and
// looks whether a plan proves a violation. The tree is never changed: the
// compiler is told to read one file from elsewhere (go build -overlay).
//
// A bug is what the incumbent has, or what the literature says controllers have:
// it believes a stale or intermediate state, misses what it did not observe,
// keeps or drops what a crash leaves behind, trusts what it should prove.
package main
