package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	plaintext "github.com/rolewright/rolewright/internal/text"
)

// supportOptions are the settings of support-bundle.
type supportOptions struct {
	readerOptions

	file        string
	watchesFile string
	// stderr is for progress.
	stderr io.Writer
}

func newSupportBundleCommand() *cobra.Command {
	var o supportOptions
	cmd := &cobra.Command{
		Use:   "support-bundle [KIND...]",
		Short: "Collect diagnostics of an operator into a file",
		Long: `Collect diagnostics into a tar.gz: versions, the operator's Pods and the end of their
logs, doctor's findings for this machine, the watches without their variables, what
"get objects" shows for all objects of the kinds, Events, runs and the queue. If there
are several replicas, runs and queue are those of --operator-pod. The kinds are those of
the watches file, or those that you give.

It reads with your rights; problems.txt lists what could not be read. Secrets, specs of
objects, environments and variables of watches are not collected. Logs, messages and runs
are as the operator has masked them: check them before you share the file. Only you can
read the file.`,
		Example: `  rolewright support-bundle -A --operator-namespace operators
  rolewright support-bundle memcached -n default --file fault.tar.gz`,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.stderr = cmd.ErrOrStderr()
			o.file = cmp.Or(o.file, "rolewright-support-"+time.Now().UTC().Format("20060102-150405")+".tar.gz")
			if err := o.write(cmd.Context(), args); err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), o.file)
			return nil
		},
	}
	o.bind(cmd.Flags())
	cmd.ValidArgsFunction = kindsAndNames(true, &o.namespace)
	cmd.Flags().StringVar(&o.file, "file", "", "The file to write, which must not exist. The default has the time in its name.")
	cmd.Flags().StringVar(&o.watchesFile, "watches-file", "./watches.yaml", "The file that says which kinds are watched.")
	return cmd
}

// write writes the file, or leaves none behind.
func (o *supportOptions) write(ctx context.Context, kinds []string) (err error) {
	f, err := os.OpenFile(o.file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return usage(err)
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			_ = os.Remove(o.file) // the error is returned
		}
	}()
	zipped := gzip.NewWriter(f)
	b := &bundle{tar: tar.NewWriter(zipped), now: time.Now(), stderr: o.stderr}
	o.collect(ctx, b, kinds)
	b.addProblems()
	return errors.Join(ctx.Err(), b.err, b.tar.Close(), zipped.Close())
}

// bundle is a tar file that is being written. err keeps the first write error.
type bundle struct {
	tar      *tar.Writer
	now      time.Time
	stderr   io.Writer
	problems []string
	err      error
}

// add adds a file.
func (b *bundle) add(name string, data []byte) {
	if b.err != nil {
		return
	}
	b.err = b.tar.WriteHeader(&tar.Header{Name: "rolewright-support/" + name, Mode: 0o600, Size: int64(len(data)), ModTime: b.now})
	if b.err == nil {
		_, b.err = b.tar.Write(data)
	}
}

// addProblems adds the list of what could not be collected, and prints that it is there.
func (b *bundle) addProblems() {
	b.add("problems.txt", []byte(strings.Join(b.problems, "\n")+"\n"))
	if n := len(b.problems); n > 0 {
		fmt.Fprintln(b.stderr, counted(n, "part is", "parts are")+" missing: see problems.txt")
	}
}

// take adds what can be collected of a part, and notes why there is not more.
func (b *bundle) take(name string, get func() (any, error)) {
	fmt.Fprintln(b.stderr, "collecting "+name)
	is, err := get()
	if err != nil {
		b.problems = append(b.problems, plaintext.Plain(name+": "+err.Error()))
	}
	if text, ok := is.(string); ok && text != "" {
		b.add(name, []byte(plaintext.Plain(text)))
	} else if !ok && is != nil {
		var data bytes.Buffer
		if err := printJSON(&data, is); err != nil {
			b.problems = append(b.problems, name+": "+err.Error())
			return
		}
		b.add(name, data.Bytes())
	}
}

// collect adds all parts.
func (o *supportOptions) collect(ctx context.Context, b *bundle, kinds []string) {
	b.take("doctor.json", func() (any, error) { return diagnosed(ctx, o.watchesFile) })
	b.take("watches.json", func() (any, error) {
		watched, err := supportWatches(o.watchesFile)
		if len(kinds) == 0 {
			for _, w := range watched {
				if kind := w.Kind + "." + w.Group; !slices.Contains(kinds, kind) {
					kinds = append(kinds, kind)
				}
			}
		}
		return orNothing(watched), err
	})
	found, err := findCluster(os.LookupEnv)
	if err != nil {
		b.problems = append(b.problems, err.Error())
		return
	}
	c := &supportCluster{supportOptions: o, found: found}
	b.take("versions.json", func() (any, error) { return c.versions() })
	for _, kind := range kinds {
		// A kind's name can be part of a file's name only in a safe form: the cluster need not have the kind.
		b.take("objects-"+strings.Map(inFileName, kind)+".json", func() (any, error) { return c.objects(ctx, kind) })
	}
	b.take("events.json", func() (any, error) { return c.events(ctx) })
	if o.operatorNamespace != "" {
		b.take("pods.json", func() (any, error) { return c.pods(ctx) })
		b.take("operator.log", func() (any, error) { return c.log(ctx) })
	}
	o.collectRuns(ctx, b)
}

// collectRuns adds the runs and the queue of a replica. If there are several, the user names the one that gets the token.
func (o *readerOptions) collectRuns(ctx context.Context, b *bundle) {
	r, err := o.connect(ctx)
	if err != nil {
		b.problems = append(b.problems, plaintext.Plain("runs: "+err.Error()))
		return
	}
	defer r.close()
	b.take("runs.json", func() (any, error) { return r.someRuns(ctx) })
	b.take("queue.json", func() (any, error) { return r.raw(ctx, "/queue") })
}

func inFileName(r rune) rune {
	if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '-' {
		return r
	}
	return '_'
}

// orNothing returns nil for an empty list.
func orNothing[T any](list []T) any {
	if len(list) == 0 {
		return nil
	}
	return list
}

// diagnosed returns what doctor finds on this machine.
func diagnosed(ctx context.Context, watchesFile string) (any, error) {
	cmd := newDoctorCommand()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(io.Discard)
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.SetArgs([]string{"-o", "json", "--watches-file", watchesFile})
	err := cmd.ExecuteContext(ctx)
	if errors.Is(err, errInvalid) {
		err = nil // the findings say it
	}
	if !json.Valid(out.Bytes()) {
		return nil, err
	}
	return json.RawMessage(out.Bytes()), err
}
