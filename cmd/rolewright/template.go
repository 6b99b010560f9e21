package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/rolewright/rolewright/controller"
	"github.com/rolewright/rolewright/controller/assembly"
	"github.com/rolewright/rolewright/controller/scenario"
	"github.com/rolewright/rolewright/internal/watches"
)

// templateOptions are the settings of template: those of run that affect every run, and its own.
type templateOptions struct {
	runOptions

	file, output string
	deleting     bool
}

func newTemplateCommand() *cobra.Command {
	var o templateOptions
	cmd := &cobra.Command{
		Use:   "template -f FILE",
		Short: "Show what a run of an object gets: extra vars, inventory, command, environment",
		Long: `Show what a run of an object gets: extra vars, inventory, command line and
environment, as the operator would write them. It asks no cluster and runs
nothing. Values of secretVars, of vaults and of variables that are known to be
secret are masked.

RUN-ID and /RUN-DIR stand for the ID and the directory of the run. Give the same
flags and variables as to the operator; unless ANSIBLE_GATHERING is set, it is taken
from config/manager/manager.yaml. An object of the cluster can be read from standard
input.`,
		Example: `  rolewright template -f config/samples/cache_v1_memcached.yaml
  kubectl get memcached a -o yaml | rolewright template -f - -o json`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.logEvents = "Nothing"
			if err := o.completeAsDeployed(cmd.Flags()); err != nil {
				return err
			}
			return o.run(cmd)
		},
	}
	fs := cmd.Flags()
	fs.StringVarP(&o.file, "filename", "f", "", "The file with the object, - for standard input.")
	textOrJSON(cmd, &o.output, "result")
	fs.BoolVar(&o.deleting, "deleting", false, "Show the run of the watch's finalizer, for an object that is deleted.")
	o.bindContent(fs)
	o.bindRuns(fs)
	o.bindReconcile(fs)
	hideFlags(fs)
	return cmd
}

func (o *templateOptions) run(cmd *cobra.Command) error {
	obj, err := readObject(o.file, cmd.InOrStdin())
	if err != nil {
		return usage(err)
	}
	if err := o.setAnsiblePaths(logr.Discard()); err != nil {
		return err
	}
	w, err := o.watchOf(obj)
	if err != nil {
		return usage(err)
	}
	p, err := controller.NewPreview(cmd.Context(), w, controller.Options{
		AnsibleArgs: o.ansibleArgs, Inventory: o.inventory, SkipFacts: o.skipFacts,
		RolesPath: assembly.RolesDirs(os.LookupEnv), CollectionsPath: assembly.CollectionsDirs(os.LookupEnv),
	}, obj, o.deleting || obj.GetDeletionTimestamp() != nil)
	if err != nil {
		return err
	}
	if o.output == outputJSON {
		var input any
		if p.Input != "" {
			input = structured(p.Input)
		}
		return printJSON(cmd.OutOrStdout(), previewJSON{
			Command: p.Command, AnsibleArgs: p.More, Environment: p.Environment, Inventory: p.Inventory,
			ExtraVars: structured(p.ExtraVars), Input: input, Warnings: append([]string{}, p.Warnings...),
		})
	}
	return printPreview(cmd.OutOrStdout(), p)
}

// watchOf returns the watch of the object's kind and version; if there are several, the one that matches the object.
func (o *runOptions) watchOf(obj *unstructured.Unstructured) (watches.Watch, error) {
	watched, err := o.loadWatches(logr.Discard())
	if err != nil {
		return watches.Watch{}, err
	}
	all := slices.DeleteFunc(watched, func(w watches.Watch) bool { return w.GVK != obj.GroupVersionKind() })
	if len(all) == 0 {
		return watches.Watch{}, fmt.Errorf("%s has no watch of %s", o.watchesFile, obj.GroupVersionKind())
	}
	w, err := watches.For(all, obj)
	if err != nil {
		return watches.Watch{}, fmt.Errorf("%s: %w", o.watchesFile, err)
	}
	if w.Executor == watches.ExecutorJob {
		w.Executor = watches.ExecutorRunner // the run is made on this machine
	}
	return w, nil
}

// readObject reads the one object of a file, or of the standard input for -.
func readObject(file string, stdin io.Reader) (*unstructured.Unstructured, error) {
	var data []byte
	var err error
	switch file {
	case "":
		return nil, fmt.Errorf("give the file with the object: -f FILE, or -f - for standard input")
	case "-":
		data, err = io.ReadAll(stdin)
	default:
		data, err = os.ReadFile(file)
	}
	if err != nil {
		return nil, err
	}
	objects, err := scenario.Decode(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if len(objects) > 1 {
		return nil, fmt.Errorf("%s: it has several objects: give a file with one", file)
	}
	if len(objects) == 0 || objects[0].GetName() == "" || objects[0].GetKind() == "" || objects[0].GetAPIVersion() == "" {
		return nil, fmt.Errorf("%s: an object with apiVersion, kind and metadata.name is expected", file)
	}
	return objects[0], nil
}

// previewJSON is the result of -o json. Its keys are an interface.
type previewJSON struct {
	Command     []string          `json:"command"`
	AnsibleArgs string            `json:"ansibleArgs"`
	Environment []string          `json:"environment"`
	Inventory   map[string]string `json:"inventory"`
	ExtraVars   any               `json:"extraVars"`
	Input       any               `json:"input,omitempty"`
	Warnings    []string          `json:"warnings"`
}

// structured returns JSON as JSON. YAML stays a text, because it has tags that JSON does not have.
func structured(text string) any {
	if json.Valid([]byte(text)) {
		return json.RawMessage(text)
	}
	return text
}

func printPreview(out io.Writer, p controller.Preview) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# Command\n%s\n", strings.Join(p.Command, " "))
	if p.More != "" {
		fmt.Fprintf(&b, "\n# Arguments for ansible-playbook (env/cmdline)\n%s\n", p.More)
	}
	if p.Input != "" {
		fmt.Fprintf(&b, "\n# Environment, without the operator's\n%s\n", strings.Join(p.Environment, "\n"))
		fmt.Fprintf(&b, "\n# Standard input (env/input.json)\n%s\n", p.Input)
	} else {
		fmt.Fprintf(&b, "\n# Environment, in addition to the operator's\n%s\n", strings.Join(p.Environment, "\n"))
	}
	for _, name := range slices.Sorted(maps.Keys(p.Inventory)) {
		fmt.Fprintf(&b, "\n# inventory/%s\n%s\n", name, strings.TrimSpace(p.Inventory[name]))
	}
	if p.Input == "" {
		fmt.Fprintf(&b, "\n# Extra vars (env/extravars)\n%s\n", p.ExtraVars)
	}
	for _, w := range p.Warnings {
		fmt.Fprintf(&b, "\nwarning: %s\n", w)
	}
	_, err := io.WriteString(out, b.String())
	return err
}
