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

// The parts of SARIF 2.1.0 that code scanning reads.
type (
	sarifLog struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool    sarifTool     `json:"tool"`
		Results []sarifResult `json:"results"`
	}
	sarifTool struct {
		Driver sarifDriver `json:"driver"`
	}
	sarifDriver struct {
		Name    string      `json:"name"`
		Version string      `json:"version"`
		Rules   []sarifRule `json:"rules"`
	}
	sarifRule struct {
		ID    string    `json:"id"`
		Short sarifText `json:"shortDescription"`
		Help  sarifText `json:"help"`
	}
	sarifText struct {
		Text string `json:"text"`
	}
	sarifResult struct {
		Rule      string          `json:"ruleId"`
		Level     Severity        `json:"level"`
		Message   sarifText       `json:"message"`
		Locations []sarifLocation `json:"locations"`
	}
	sarifLocation struct {
		Physical struct {
			Artifact struct {
				URI string `json:"uri"`
			} `json:"artifactLocation"`
			Region struct {
				Line   int `json:"startLine"`
				Column int `json:"startColumn"`
			} `json:"region"`
		} `json:"physicalLocation"`
	}
)

// SARIF writes findings of rules in the form that code scanning reads; version is the
// program's.
func SARIF(out io.Writer, rules []Rule, all []Finding, version string) error {
	run := sarifRun{Tool: sarifTool{sarifDriver{Name: "rolewright", Version: version}}, Results: []sarifResult{}}
	for _, r := range rules {
		run.Tool.Driver.Rules = append(run.Tool.Driver.Rules, sarifRule{r.ID, sarifText{r.Title}, sarifText{r.Text}})
	}
	for _, f := range all {
		var at sarifLocation
		at.Physical.Artifact.URI = f.File
		at.Physical.Region.Line, at.Physical.Region.Column = max(f.Line, 1), max(f.Column, 1)
		message := strings.TrimSuffix(f.Message+"\n"+f.Hint, "\n")
		run.Results = append(run.Results, sarifResult{f.Rule, f.Severity, sarifText{message}, []sarifLocation{at}})
	}
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(sarifLog{Schema: "https://json.schemastore.org/sarif-2.1.0.json", Version: "2.1.0", Runs: []sarifRun{run}})
}
