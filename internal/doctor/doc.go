// Package doctor finds out what would keep an operator from working, or make it
// unsafe, where it is to run: versions with known vulnerabilities, places that
// cannot be written or that others can write, limits of the control group, kinds
// that are not installed as they should be, and permissions that are missing.
//
// It looks, and changes nothing; it starts no programs, and knows no flags.
package doctor
