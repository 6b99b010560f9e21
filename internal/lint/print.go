package lint

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// GitHub writes findings as commands that annotate a pull request.
func GitHub(out io.Writer, all []Finding) error {
	escape := strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A").Replace
	property := strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C").Replace
	for _, f := range all {
		message := f.Message
		if f.Hint != "" {
			message += "\n" + f.Hint
		}
		if _, err := fmt.Fprintf(out, "::%s file=%s,line=%d,col=%d,title=%s::%s\n",
			f.Severity, property(f.File), max(f.Line, 1), max(f.Column, 1), f.Rule, escape(message)); err != nil {
			return err
		}
	}
	return nil
}

// SARIF writes findings of rules in the format of code scanning; version is the
// version of this program.
func SARIF(out io.Writer, rules []Rule, all []Finding, version string) error {
	text := func(text string) map[string]any { return map[string]any{"text": text} }
	driver, results := []any{}, []any{}
	for _, r := range rules {
		driver = append(driver, map[string]any{"id": r.ID, "shortDescription": text(r.Title), "help": text(r.Text)})
	}
	for _, f := range all {
		results = append(results, map[string]any{
			"ruleId": f.Rule, "level": f.Severity, "message": text(strings.TrimSuffix(f.Message+"\n"+f.Hint, "\n")),
			"locations": []any{map[string]any{"physicalLocation": map[string]any{
				"artifactLocation": map[string]any{"uri": f.File}, "region": map[string]any{"startLine": max(f.Line, 1), "startColumn": max(f.Column, 1)},
			}}},
		})
	}
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(map[string]any{
		"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0",
		"runs": []any{map[string]any{"results": results, "tool": map[string]any{
			"driver": map[string]any{"name": "rolewright", "version": version, "rules": driver},
		}}},
	})
}
