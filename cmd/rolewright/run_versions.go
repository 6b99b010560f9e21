package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-logr/logr"

	"github.com/rolewright/rolewright/internal/doctor"
	"github.com/rolewright/rolewright/runner"
)

// versionCheck finds out which versions there are.
type versionCheck func(context.Context) (runner.Versions, error)

// judgeVersions is check, which also says which known vulnerabilities concern the
// versions: in the log, each time that they are others, or, with
// --refuse-vulnerable-ansible, as an error.
func (o *runOptions) judgeVersions(check versionCheck, log logr.Logger) versionCheck {
	var said runner.Versions
	return func(ctx context.Context) (runner.Versions, error) {
		v, err := check(ctx)
		if err != nil {
			return v, err
		}
		var problems []error
		for _, f := range []doctor.Finding{
			doctor.CheckVersion("ansible-core", v.Core, debianCore(v)), doctor.CheckVersion("ansible-runner", v.Runner, ""),
		} {
			if f.State == doctor.Failed {
				problems = append(problems, fmt.Errorf("%s %s", f.Check, f))
			}
		}
		known := errors.Join(problems...)
		if known == nil || o.refuseVulnerable {
			return v, known
		}
		if said != v {
			said = v
			log.Info("Warning: known vulnerabilities concern this Ansible; --refuse-vulnerable-ansible would not start with it", "found", known.Error())
		}
		return v, nil
	}
}

// checkVersions is the check at the start. That there is no Ansible is no reason
// not to start: it may come.
func (o *runOptions) checkVersions(ctx context.Context, options runner.Options, log logr.Logger) error {
	r := runner.New(options)
	defer r.Close()
	_, err := o.judgeVersions(r.Check, log)(ctx)
	if err == nil || errors.Is(err, runner.ErrUnavailable) {
		return nil
	}
	return fmt.Errorf("--refuse-vulnerable-ansible: %w", err)
}
