package main

import (
	"flag"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/rolewright/rolewright/test/must"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// flagDoc returns the reference page of all flags of run.
func flagDoc() string {
	var b strings.Builder
	b.WriteString("# Flags of `rolewright run`\n\n" +
		"Written by `go test ./cmd/rolewright -run FlagReference -update`; edit the flags, not this page.\n\n" +
		"The environment has a say too: see [environment variables](environment.md).\n")
	for _, group := range (&runOptions{}).flagGroups() {
		fs := pflag.NewFlagSet(group.title, pflag.ContinueOnError)
		group.bind(fs)
		hideFlags(fs)
		fmt.Fprintf(&b, "\n## %s\n\n| flag | default | meaning |\n|---|---|---|\n", group.title)
		fs.VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				fmt.Fprintf(&b, "| `--%s` | %s | %s |\n", f.Name, code(f.DefValue), cell(f.Usage))
			}
		})
	}
	b.WriteString("\n## Deprecated\n\nStill accepted; the log says what to do instead.\n\n| flag | instead |\n|---|---|\n")
	for _, d := range deprecations() {
		fmt.Fprintf(&b, "| `--%s` | %s |\n", d.flag, cell(d.instead))
	}
	return b.String()
}

func code(value string) string {
	if value == "" || strings.Contains(value, " ") {
		return value
	}
	return "`" + value + "`"
}

func cell(text string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;", ">", "&gt;").Replace(text)
}

func TestFlagReference_IsInStepWithTheFlags(t *testing.T) {
	checkPage(t, "flags.md", flagDoc())
}

// checkPage compares a reference page with what it should be, and writes it with -update.
func checkPage(t *testing.T, name, want string) {
	t.Helper()
	must.Golden(t, *update, filepath.Join("..", "..", "docs", "reference", name), want)
}
