// Package assembly puts the parts of an operator together, for the command run and for
// programs with their own manager. It knows neither flags nor the command line.
package assembly
