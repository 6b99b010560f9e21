package runner

import (
	"encoding/json"
	"strconv"
	"strings"
)

// apiAnswer is how an answer of the API server begins. Modules of kubernetes.core put the whole answer into their message.
const apiAnswer = `{"kind":"Status"`

// withoutStatus replaces the API server's answer in a module's message by the message in that answer. The answer is JSON or,
// with older Kubernetes clients, JSON in a Python bytes literal: b'…'.
func withoutStatus(message string) string {
	before, rest, found := strings.Cut(message, apiAnswer)
	if !found {
		return message
	}
	rest = apiAnswer + rest
	if start, bytes := strings.CutSuffix(before, "b'"); bytes {
		before = start
		var text []byte
		for rest != "" && rest[0] != '\'' {
			char, multibyte, tail, err := strconv.UnquoteChar(rest, '\'')
			if err != nil {
				return message
			}
			if rest = tail; multibyte {
				text = append(text, string(char)...)
			} else {
				text = append(text, byte(char))
			}
		}
		rest = string(text) + strings.TrimPrefix(rest, "'")
	}
	var status struct{ Message string }
	answer := json.NewDecoder(strings.NewReader(rest))
	if answer.Decode(&status) != nil || status.Message == "" {
		return message
	}
	return before + status.Message + strings.TrimRight(rest[answer.InputOffset():], "\n")
}
