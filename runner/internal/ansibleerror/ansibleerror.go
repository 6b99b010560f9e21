// Package ansibleerror finds the error with which ansible-playbook ends that has no
// failed task to show.
package ansibleerror

import "regexp"

var (
	// begin matches where an error begins. ansible-core up to 2.18 starts the line with
	// "ERROR! " ("ERROR: " before it is set up), 2.19 with "[ERROR]: "; argparse of
	// either prints usage and "ansible-playbook: error: …".
	begin = regexp.MustCompile(`(?m)^(?:ERROR[!:] |\[ERROR\]: |ansible-playbook: error: )`)
	// jsonDetour matches what 2.14 says before it comes to the syntax error.
	jsonDetour = regexp.MustCompile(`(?s)^We were unable to read either as JSON nor YAML.*?\n\n(Syntax Error while loading YAML\.)\s*`)
)

// Last is the last error of an output, with all that follows; found is false, and
// the output unchanged, if it has none.
func Last(output string) (last string, found bool) {
	all := begin.FindAllStringIndex(output, -1)
	if len(all) == 0 {
		return output, false
	}
	return output[all[len(all)-1][0]:], true
}

// Text is an error without the word for it.
func Text(last string) string {
	return jsonDetour.ReplaceAllString(begin.ReplaceAllString(last, ""), "$1 ")
}
