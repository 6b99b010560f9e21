// Package assembly puts the parts of an operator together: for the command run, and for
// programs that have a manager of their own. It knows neither flags nor the command line.
package assembly
