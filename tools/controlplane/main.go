package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const usage = `A real Kubernetes control plane on this machine, for development and tests.

  controlplane run  [flags]            start, print the export line, stay until a signal
  controlplane exec [flags] -- CMD...  start, run CMD with KUBECONFIG set, stop, exit as CMD did;
                                       CMD has no terminal input: it gets /dev/null

etcd, kube-apiserver and kube-controller-manager are taken from $KUBEBUILDER_ASSETS where it is set and has them,
else from --assets.

Flags:
`

// Exit codes as a shell has them: for a program that Ctrl-C has ended, and for one that cannot be started.
const (
	exitInterrupted = 130
	exitNotFound    = 127
)

// options are the options of the command line, with absolute paths.
type options struct {
	Dir           string        // state directory; empty: a temporary one
	Assets        string        // where the programs are that KUBEBUILDER_ASSETS does not provide
	AuditLog      string        // empty: no audit log
	Kwok          bool          // scheduler, kwok and one node too
	PodsExec      bool          // kwok runs commands for Pods; implies Kwok
	Node          bool          // a real kubelet instead of kwok
	Images        []string      // archives for its containerd
	Isolated      bool          // set by isolate: we are in namespaces of our own
	DieWithParent bool          // the end of standard input ends the control plane
	Timeout       time.Duration // how long the start may take
}

func main() {
	os.Exit(run(os.Args[1:]))
}

// run is main with an exit code, so that deferred clean-up happens.
func run(args []string) int {
	if len(args) == 0 {
		args = []string{"help"}
	}
	mode, args := args[0], args[1:]
	if mode == "pause" {
		pause()
		return 0
	}
	if mode == "janitor" && len(args) == 1 {
		sweep(args[0], os.Stdin)
		return 0
	}
	opts, command, err := parse(mode, args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintln(os.Stderr, "controlplane:", err)
		return 2
	}
	if opts.Node && !opts.Isolated {
		code, err := isolate(opts, mode, args)
		if err != nil {
			fmt.Fprintln(os.Stderr, "controlplane:", err)
		}
		return code
	}
	code, err := dispatch(mode, opts, command)
	if err != nil {
		fmt.Fprintln(os.Stderr, "controlplane:", err)
	}
	return code
}

func dispatch(mode string, opts options, command []string) (int, error) {
	ctx, stop := interruptible(opts)
	defer stop()
	var err error
	switch mode {
	case "run":
		err = stay(ctx, opts, os.Stdout, os.Stderr)
	case "exec":
		return execute(ctx, opts, command)
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return exitInterrupted, err
	case err != nil:
		return 1, err
	}
	return 0, nil
}

// interruptible is the context that signals end, and the end of standard input where --die-with-parent asks for it.
func interruptible(opts options) (context.Context, context.CancelFunc) {
	if !opts.DieWithParent {
		return signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	}
	// Ctrl-C reaches the whole terminal group. What it means is the parent's to decide: its own clean-up may still need
	// the API server.
	signal.Ignore(syscall.SIGINT, syscall.SIGHUP)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		// The kernel closes the parent's end of the pipe however the parent ends. Errors end the wait as well.
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	return ctx, func() { cancel(); stop() }
}

// parse reads the flags of a mode and makes every path absolute, because the components have another working directory.
func parse(mode string, args []string) (options, []string, error) {
	opts := options{Timeout: 3 * time.Minute}
	flags := flag.NewFlagSet("controlplane", flag.ContinueOnError)
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), usage)
		flags.PrintDefaults()
	}
	flags.StringVar(&opts.Dir, "dir", "", "directory for all state, removed at the end (default: a temporary one)")
	flags.StringVar(&opts.Assets, "assets", "", "directory of the control plane's programs (default: this program's own)")
	flags.StringVar(&opts.AuditLog, "audit-log", "",
		"write an audit log: custom resources with request and response, all else as metadata; a relative path lies in the state directory")
	flags.BoolVar(&opts.Kwok, "kwok", false, "start kube-scheduler and kwok and make one node, so that Deployments become Available")
	flags.BoolVar(&opts.PodsExec, "pods-exec", false,
		"--kwok whose Pods can be reached: exec runs the command on this machine, in the directory pods of the state "+
			"directory, logs and attach read the file log there, port-forward echoes; every user of the machine who finds the port can run commands as you")
	flags.BoolVar(&opts.Node, "node", false,
		"exec: as root, start kube-scheduler, containerd and a kubelet: one node on which Pods really run, in namespaces of its own")
	flags.Func("image", "exec: an archive with an image for --node, as docker save writes it; may be repeated", func(path string) error {
		opts.Images = append(opts.Images, path)
		return nil
	})
	flags.BoolVar(&opts.Isolated, strings.TrimPrefix(isolatedFlag, "--"), false, "internal: the namespaces are there")
	flags.BoolVar(&opts.DieWithParent, "die-with-parent", false, "run: stop when standard input ends; Ctrl-C is left to the parent")
	flags.DurationVar(&opts.Timeout, "timeout", opts.Timeout, "how long the start may take")
	if err := flags.Parse(args); err != nil {
		return opts, nil, err
	}
	command := flags.Args()
	opts.Kwok = opts.Kwok || opts.PodsExec
	switch {
	case mode == "help", mode == "--help", mode == "-h":
		flags.SetOutput(os.Stdout)
		flags.Usage()
		return opts, nil, flag.ErrHelp
	case !strings.Contains(" run exec ", " "+mode+" "):
		return opts, nil, fmt.Errorf("unknown mode %q: want run or exec", mode)
	case mode == "exec" && len(command) == 0:
		return opts, nil, errors.New("exec wants a command after --")
	case mode != "exec" && len(command) > 0:
		return opts, nil, fmt.Errorf("unexpected argument %q", command[0])
	case mode != "exec" && opts.Node:
		return opts, nil, errors.New("--node is for exec: the node's namespaces end with the command")
	case opts.Node && opts.Kwok:
		return opts, nil, errors.New("--node and --kwok both bring a node: choose one")
	case !opts.Node && len(opts.Images) > 0:
		return opts, nil, errors.New("--image is for --node: nothing else runs images")
	case mode != "run" && opts.DieWithParent:
		return opts, nil, errors.New("--die-with-parent belongs to run")
	}
	return opts, command, opts.absolute()
}

func (o *options) absolute() error {
	if o.Assets == "" {
		self, err := os.Executable()
		if err != nil {
			return fmt.Errorf("find this program: %w", err)
		}
		o.Assets = filepath.Dir(self)
	}
	for _, path := range []*string{&o.Dir, &o.Assets} {
		if *path == "" {
			continue
		}
		abs, err := filepath.Abs(*path)
		if err != nil {
			return fmt.Errorf("make %s absolute: %w", *path, err)
		}
		*path = abs
	}
	return nil
}
