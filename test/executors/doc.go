// Package executors proves that a run is the same run whichever executor makes it:
// a corpus of playbooks is run both ways, and what can be seen of the runs is
// compared. testdata/corpus/README.md says what is in the corpus.
package executors
