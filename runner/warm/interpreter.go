package warm

import (
	"fmt"
	"os"
	"regexp"
)

// Interpreter returns the path of the Python that executes the scripts ansible-runner and
// ansible-playbook at these paths.
func Interpreter(runner, playbook string) (string, error) {
	a, err := scriptInterpreter(runner)
	if err != nil {
		return "", err
	}
	b, err := scriptInterpreter(playbook)
	if err != nil {
		return "", err
	}
	if a != b {
		return "", fmt.Errorf("%s and %s have different interpreters, %s and %s", runner, playbook, a, b)
	}
	return a, nil
}

var (
	shebang    = regexp.MustCompile(`^#! ?(/\S*/python3?[0-9.]*)\n`)
	entryPoint = regexp.MustCompile(`(?m)^from (ansible_runner\.__main__|ansible\.cli\.playbook) import main$`)
)

// scriptInterpreter returns the interpreter of a script that calls the main function of
// ansible-runner or ansible-playbook, in the form that pip and distributions write.
func scriptInterpreter(name string) (string, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return "", fmt.Errorf("read script: %w", err)
	}
	match := shebang.FindSubmatch(text)
	if match == nil || !entryPoint.Match(text) {
		return "", fmt.Errorf("%s is not a Python script as pip or a distribution installs it", name)
	}
	return string(match[1]), nil
}
