// Package ansibleerror finds, in the output of ansible-playbook, the error with which it
// ended without a failed task.
package ansibleerror

import "regexp"

var (
	// begin matches the beginning of an error. ansible-core up to 2.18 starts the line with
	// "ERROR! " ("ERROR: " before it is set up), 2.19 with "[ERROR]: "; argparse of
	// either prints usage and "ansible-playbook: error: …".
	begin = regexp.MustCompile(`(?m)^(?:ERROR[!:] |\[ERROR\]: |ansible-playbook: error: )`)
	// jsonDetour matches what 2.14 prints before the syntax error itself.
	jsonDetour = regexp.MustCompile(`(?s)^We were unable to read either as JSON nor YAML.*?\n\n(Syntax Error while loading YAML\.)\s*`)
)

// Last returns the last error in an output, with all that follows. If there is none,
// found is false, and last is the whole output.
func Last(output string) (last string, found bool) {
	all := begin.FindAllStringIndex(output, -1)
	if len(all) == 0 {
		return output, false
	}
	return output[all[len(all)-1][0]:], true
}

// Text returns the text of an error without the word ERROR before it.
func Text(last string) string {
	return jsonDetour.ReplaceAllString(begin.ReplaceAllString(last, ""), "$1 ")
}
