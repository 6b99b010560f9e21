package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/rolewright/rolewright/test/must"
)

// manDir is where make man writes the manual pages.
var manDir = flag.String("man", "", "write the manual pages to this directory")

// commands returns all commands that users call, each before its subcommands.
func commands(cmd *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{cmd}
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			all = append(all, commands(c)...)
		}
	}
	return all
}

// documented returns the complete command line.
func documented() *cobra.Command {
	root := newRootCommand(programName)
	root.InitDefaultCompletionCmd()
	root.DisableAutoGenTag = true
	for _, c := range commands(root) {
		c.InitDefaultHelpFlag()
	}
	return root
}

// commandDoc returns the reference page of all commands, which has the text of --help.
func commandDoc(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("# Commands\n\n" +
		"Written by `go test ./cmd/rolewright -run CommandReference -update`; edit the commands, not this page.\n\n" +
		"It is what `--help` prints. All flags of `run` are in [flags](flags.md), exit codes in [exit codes](exit-codes.md). `make man` writes\n" +
		"manual pages of the same text. Completion for shells: `rolewright completion SHELL --help`.\n")
	for _, c := range commands(documented()) {
		if c.HasParent() && c.Parent().Name() == "completion" {
			continue // cobra's instructions for each shell
		}
		help := c.UsageString()
		if text := strings.TrimSpace(c.Long); text != "" {
			help = text + "\n\n" + help
		} else {
			help = c.Short + "\n\n" + help
		}
		fmt.Fprintf(&b, "\n## %s\n\n```text\n%s\n```\n", c.CommandPath(), strings.TrimSpace(help))
	}
	return b.String()
}

func TestCommandReference_IsInStepWithTheCommands(t *testing.T) {
	checkPage(t, "commands.md", commandDoc(t))
}

// The manual pages have every command and its flags. With -man, the test writes the pages to that directory.
func TestManPages_HaveEveryCommand(t *testing.T) {
	dir := *manDir
	if dir == "" {
		dir = t.TempDir()
	} else if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	root := documented()
	for _, c := range commands(root) {
		c.Long = indented(c.Long)
	}
	never := time.Unix(0, 0).UTC() // so that the pages are the same each time
	must.Do(t, doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "Rolewright", Manual: "Rolewright", Date: &never}, dir))
	for _, c := range commands(root) {
		page, err := os.ReadFile(filepath.Join(dir, strings.ReplaceAll(c.CommandPath(), " ", "-")+".1"))
		if err != nil {
			t.Error(err)
			continue
		}
		if c.HasAvailableLocalFlags() && !strings.Contains(string(page), "SH OPTIONS") {
			t.Errorf("%s: the page has no options", c.CommandPath())
		}
	}
}

// indented turns the indented parts of a help text into Markdown blocks, which are not filled.
func indented(help string) string {
	var b strings.Builder
	before := false
	for line := range strings.Lines(help) {
		now := strings.HasPrefix(line, "  ") || before && strings.TrimSpace(line) == ""
		if now != before {
			b.WriteString("\n")
		}
		if before = now; now {
			b.WriteString("    ")
		}
		b.WriteString(line)
	}
	return b.String()
}
