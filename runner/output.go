package runner

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/rolewright/rolewright/internal/text"
	"github.com/rolewright/rolewright/runner/internal/ansibleerror"
)

// What Ansible prints when it ends without a failed task; see [ansibleerror].
var (
	// afterError matches what follows the text of an error: the recap, or the
	// help that argparse prints after its error.
	afterError = regexp.MustCompile(`(?m)^(?:PLAY RECAP \*| \n)`)
	// usageError matches arguments that argparse refuses.
	usageError = regexp.MustCompile(`(?m)^ansible-playbook: error: `)
	// badCmdline matches ansible-runner's traceback for an invalid env/cmdline.
	badCmdline = regexp.MustCompile(`ValueError: No (?:closing quotation|escaped character)`)
	// deadWorker matches what ansible-playbook says when one of its processes
	// was killed, most likely because no memory was left.
	deadWorker = regexp.MustCompile(`worker was found in a dead state`)
	// fullDisk matches the texts for ENOSPC and EDQUOT of the C library and Python.
	fullDisk = regexp.MustCompile(`(?i)no space left on device|disk quota exceeded|\[Errno (?:28|122)\]`)
	// position matches the place of a parse error, in the words of 2.14 and 2.19.
	position = regexp.MustCompile(`(?m)(?:^The error appears to be in '([^'\n]+)': line (\d+)|^Origin: (.+?)(?::(\d+))?(?::\d+)?$)`)
)

// signs are texts by which Ansible's messages are classified; the messages carry
// no other sign of their kind. The first match wins.
//
//nolint:gochecknoglobals // compiled once, and never changed
var signs = []struct {
	reason  Reason
	pattern *regexp.Regexp
}{
	{VaultError, regexp.MustCompile(`(?i)no vault secrets (?:were )?found|decryption failed|undecryptable|vault format unhexlify|not vault encrypted data|vault password file .* was not found`)},
	{RoleNotFound, regexp.MustCompile(`(?i)the role '[^']*' was not found|the playbook: .* could not be found|unable to retrieve file contents\s+could not find or access '[^']*\.ya?ml'`)},
	{UndefinedVariable, regexp.MustCompile(`(?i)'[^'\n]+' is undefined|undefined variable|'[\w.]+ object' has no attribute|object of type '[^'\n]+' has no attribute`)},
}

// classify returns the kind of failure that a message of Ansible is about, or otherwise.
func classify(text string, otherwise Reason) Reason {
	for _, sign := range signs {
		if sign.pattern.MatchString(text) {
			return sign.reason
		}
	}
	return otherwise
}

// explainOutput explains, from the end of the output, the end of a run in which
// no task is known to have failed.
func (r Result) explainOutput() (Reason, string, string) {
	output, found := ansibleerror.Last(r.Tail)
	if end := afterError.FindStringIndex(output); found && end != nil {
		output = output[:end[0]]
	}
	place := fmt.Sprintf("ansible-playbook ended with exit code %d", r.ExitCode)
	if m := position.FindStringSubmatch(output); m != nil {
		place = "at " + strings.TrimSuffix(m[1]+m[3]+":"+m[2]+m[4], ":") + "\n" + place
	} else if r.Summary.Task.Path != "" {
		place = r.lastTask() + "\n" + place
	}
	if !found {
		if strings.TrimSpace(output) == "" {
			output = "ansible-playbook left neither result nor output"
		}
		return PlaybookFailed, text.LastLines(output, messageLimit-placeLimit), place
	}
	usage := usageError.MatchString(output)
	output = ansibleerror.Text(output)
	if deadWorker.MatchString(output) {
		return RunnerDied, "a process of ansible-playbook was killed: " + output, place
	}
	return r.outputReason(output, usage), output, place
}

// Exit codes of ansible-core. Those of a failed or unreachable host come with
// stats and are judged by them.
const (
	exitParserError = 4
	exitBadOptions  = 5
)

func (r Result) outputReason(text string, usage bool) Reason {
	switch reason := classify(text, PlaybookFailed); {
	case usage, r.ExitCode == exitBadOptions:
		return BadArguments
	case reason != PlaybookFailed && reason != UndefinedVariable:
		return reason
	case r.ExitCode == exitParserError:
		return PlaybookInvalid
	default:
		return reason
	}
}

// lastLine returns the last line of text that is not blank.
func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:])
}
