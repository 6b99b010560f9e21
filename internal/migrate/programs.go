package migrate

import (
	"regexp"
	"slices"
	"strings"

	"github.com/rolewright/rolewright/internal/scaffold"
)

// image is what the Dockerfiles say about the operator's image.
type image struct {
	// dockerfiles is how many were read. ours is how many of them have a stage that is, or may
	// be, based on Rolewright's image.
	dockerfiles, ours int
	// copied is true if a Dockerfile copies the program into an image of its own.
	copied bool
	// installed are the arguments of apt-get install.
	installed []string
}

// missing matches programs that UBI has, or that are usual with it, and Rolewright's image lacks.
const missing = `(?:/usr/bin/)?(curl|git|rpm|unzip)`

var (
	// called matches such a program at the beginning of a command in RUN.
	called = regexp.MustCompile(`(?:^|&&|\|\||[;|(]|\b(?:then|do|else)\s)\s*(?:--\S+\s+)*(?:sudo\s+)?` + missing + `(?:\s[^&|;]*|$)`)
	// calledByTask matches such a program in a task.
	calledByTask = regexp.MustCompile(`^\s*(?:-\s+)?(?:(?:ansible\.builtin\.)?(?:command|shell|raw)|cmd):\s*["']?` + missing + `\s.*`)
	// calledByScript matches curl in a line of a script; the other names are ordinary words, too.
	calledByScript = regexp.MustCompile(`^\s*(curl)\s+(?:-|["']?(?:https?:|\{\{|\$)).*`)
	aptInstall     = regexp.MustCompile(`\bapt(?:-get)?\b[^&|;]*\binstall\b([^&|;]*)`)
	fromLine       = regexp.MustCompile(`(?i)^FROM\s+(?:--\S+\s+)*(\S+)(?:\s+AS\s+(\S+))?`)
)

// instruction is an instruction of a Dockerfile. In its text, a form feed stands for a continued line.
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

// programs finds programs that stages based on Rolewright's image call but do not have.
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

// calls finds tasks that call programs the image does not have. Dockerfiles are read before
// roles and playbooks, because files are read in alphabetical order.
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

// ownImage reports a project whose images are all based on others.
func (r *reporter) ownImage() {
	if r.image.dockerfiles > 0 && r.image.ours == 0 && !r.image.copied {
		r.file = "."
		r.add(otherImage, 0, "no FROM line of a Dockerfile names ansible-operator's image or Rolewright's")
	}
}
