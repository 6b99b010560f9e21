// Package doctor finds problems that would keep an operator from working in its
// environment, or make it unsafe: versions with known vulnerabilities, places that
// cannot be written or that others can write, limits of the control group, kinds
// that are not installed correctly, and missing permissions.
//
// It changes nothing, starts no programs, and knows no flags.
package doctor
