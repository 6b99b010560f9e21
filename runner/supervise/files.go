package supervise

import (
	"errors"
	"fmt"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"
)

// files are the files that a command has open when it starts. All but output may be nil.
type files struct{ output, errors, input, reports *os.File }

// open opens the other files of a command whose output is open.
func (c Command) open(output *os.File) (f files, err error) {
	f.output = output
	defer func() {
		if err != nil {
			f.close()
		}
	}()
	if c.Errors != "" {
		if f.errors, err = os.OpenFile(c.Errors, os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600); err != nil {
			return f, fmt.Errorf("create output file: %w", err)
		}
	}
	if c.Input != "" {
		if f.input, err = os.OpenFile(c.Input, os.O_RDONLY|unix.O_NOFOLLOW, 0); err != nil {
			return f, fmt.Errorf("open the input: %w", err)
		}
	}
	if c.Reports != "" {
		if f.reports, err = os.OpenFile(c.Reports, os.O_WRONLY|os.O_APPEND|unix.O_NOFOLLOW, 0); err != nil {
			return f, fmt.Errorf("open the file for reports: %w", err)
		}
	}
	return f, nil
}

// give makes cmd start with the files open.
func (f files) give(cmd *exec.Cmd) {
	cmd.Stdout, cmd.Stderr = f.output, f.output
	if f.errors != nil {
		cmd.Stderr = f.errors
	}
	if f.input != nil {
		cmd.Stdin = f.input
	}
	if f.reports != nil {
		cmd.ExtraFiles = []*os.File{f.reports} // the first is descriptor 3
	}
}

// close closes all but the output.
func (f files) close() {
	_ = errors.Join(f.errors.Close(), f.input.Close(), f.reports.Close()) // nothing is lost with them
}
