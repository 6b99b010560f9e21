package migrate

import (
	"regexp"
	"slices"
	"strings"

	"github.com/rolewright/rolewright/internal/scaffold"
)

// image is what the Dockerfiles say of the operator's image.
type image struct {
	// dockerfiles is how many were read, ours how many have a stage that is, or may be,
	// built on Rolewright's image.
	dockerfiles, ours int
	// copied is true if one copies the program into an image of its own.
	copied bool
	// installed are the arguments of apt-get install.
	installed []string
}

// missing are programs of UBI, or usual beside it, that Rolewright's image does not have.
const missing = `(?:/usr/bin/)?(curl|git|rpm|unzip)`

var (
	// called is such a program at the beginning of a command of RUN.
	called = regexp.MustCompile(`(?:^|&&|\|\||[;|(]|\b(?:then|do|else)\s)\s*(?:--\S+\s+)*(?:sudo\s+)?` + missing + `(?:\s[^&|;]*|$)`)
	// calledByTask is one in a task.
	calledByTask = regexp.MustCompile(`^\s*(?:-\s+)?(?:(?:ansible\.builtin\.)?(?:command|shell|raw)|cmd):\s*["']?` + missing + `\s.*`)
	// calledByScript is curl in a line of a script; the others are words, too.
	calledByScript = regexp.MustCompile(`^\s*(curl)\s+(?:-|["']?(?:https?:|\{\{|\$)).*`)
	aptInstall     = regexp.MustCompile(`\bapt(?:-get)?\b[^&|;]*\binstall\b([^&|;]*)`)
	fromLine       = regexp.MustCompile(`(?i)^FROM\s+(?:--\S+\s+)*(\S+)(?:\s+AS\s+(\S+))?`)
)

// instruction is one of a Dockerfile. Its text has a form feed where a line goes on.
type instruction struct {
	line int
	text string
}

func instructions(text string) (all []instruction) {
	continued := false
	for n, line := range strings.Split(text, "\n") {
		trimmed := strings.TrimSpace(line)
		comment := strings.HasPrefix(trimmed, "#")
		if comment {
			trimmed = ""
		}
		part, more := strings.CutSuffix(trimmed, `\`)
		if continued {
			all[len(all)-1].text += "\f" + part
		} else {
			all = append(all, instruction{n + 1, part})
		}
		continued = more || continued && comment
	}
	return all
}

// programs finds what stages on Rolewright's image call and do not have.
func (r *reporter) programs(text string) {
	all := instructions(text)
	for _, in := range all {
		for _, m := range aptInstall.FindAllStringSubmatch(in.text, -1) {
			r.image.installed = append(r.image.installed, strings.Fields(m[1])...)
		}
		r.image.copied = r.image.copied || strings.HasPrefix(in.text, "COPY ") && strings.Contains(in.text, "rolewright")
	}
	stages, ours, has := map[string]bool{}, false, 0
	for _, in := range all {
		if m := fromLine.FindStringSubmatch(in.text); m != nil {
			ours = stages[m[1]] || scaffold.WithImage(in.text) != in.text || strings.Contains(m[1], "rolewright/") || strings.Contains(m[1], "$")
			if m[2] != "" {
				stages[m[2]] = ours
			}
			if ours {
				has = 1
			}
		}
		command, ok := strings.CutPrefix(in.text, "RUN ")
		if !ok || !ours {
			continue
		}
		for _, at := range called.FindAllStringSubmatchIndex(command, -1) {
			if name := command[at[2]:at[3]]; !slices.Contains(r.image.installed, name) {
				r.add(noProgram, in.line+strings.Count(command[:at[2]], "\f"), strings.ReplaceAll(command[at[2]:at[1]], "\f", " "))
			}
		}
	}
	r.image.dockerfiles, r.image.ours = r.image.dockerfiles+1, r.image.ours+has
}

// calls finds tasks that call what the image does not have. Dockerfiles are read before
// roles and playbooks, by the order of their names.
func (r *reporter) calls(text string) {
	if r.image.dockerfiles > 0 && r.image.ours == 0 {
		return // the image is the project's own
	}
	n := 0
	for line := range strings.SplitSeq(text, "\n") {
		n++
		for _, pattern := range []*regexp.Regexp{calledByTask, calledByScript} {
			if m := pattern.FindStringSubmatch(line); m != nil && !slices.Contains(r.image.installed, m[1]) {
				r.add(noProgram, n, m[0])
			}
		}
	}
}

// ownImage tells about a project whose images are all built on others.
func (r *reporter) ownImage() {
	if r.image.dockerfiles > 0 && r.image.ours == 0 && !r.image.copied {
		r.file = "."
		r.add(otherImage, 0, "no FROM line of a Dockerfile names ansible-operator's image or Rolewright's")
	}
}
