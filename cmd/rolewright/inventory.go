package main

import (
	"cmp"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rolewright/rolewright/controller"
)

func newInventoryCommand() *cobra.Command {
	var o explainOptions
	cmd := &cobra.Command{
		Use:   "inventory KIND/NAME",
		Short: "List what an object owns, and what prune may remove of it",
		Long: `List what an object of a watched kind owns: the objects with its owner mark, of the
kinds that its status records, each with the status that kstatus computes. If the watch
has prune, it says for each whether a run that does not touch it removes it, or why
not. It changes nothing. It reads the objects and the watches file, so run it in the
operator's Pod or in its project.`,
		Example: `  rolewright inventory memcached/sample -n default
  rolewright inventory memcached/sample -o json`,
		Args: oneArgument("give an object, such as memcached/sample"),
		RunE: func(cmd *cobra.Command, args []string) error { return o.inventory(cmd, args[0]) },
	}
	fs := cmd.Flags()
	o.bindReconcile(pflag.NewFlagSet("", pflag.ContinueOnError)) // for their defaults
	fs.StringVarP(&o.namespace, "namespace", "n", "", "The namespace of the object. The default is WATCH_NAMESPACE, or the namespace of the kubeconfig.")
	textOrJSON(cmd, &o.output, "list")
	fs.StringVar(&o.watchesFile, "watches-file", "./watches.yaml", "The file that says which kinds are watched.")
	return cmd
}

func (o *explainOptions) inventory(cmd *cobra.Command, object string) error {
	if !strings.Contains(object, "/") {
		return usage(fmt.Errorf("%q is not an object: give KIND/NAME, such as memcached/sample", object))
	}
	obj, w, objects, err := o.find(cmd.Context(), object)
	if err != nil {
		return err
	}
	items, err := controller.Inventory(cmd.Context(), objects.client, obj, w, splitNamespaces(os.Getenv(envWatchNamespace)))
	if err != nil {
		return unreachable(err)
	}
	if o.output == outputJSON {
		return printJSON(cmd.OutOrStdout(), items)
	}
	return (&table{out: cmd.OutOrStdout()}).print(inventoryRows(items, w.Prune)...)
}

func inventoryRows(items []controller.Item, prune bool) [][]string {
	rows := [][]string{{"KIND", "NAMESPACE", "NAME", "STATUS"}}
	if prune {
		rows[0] = append(rows[0], "REMOVED IF UNTOUCHED")
	}
	for _, i := range items {
		row := []string{i.Kind, cmp.Or(i.Namespace, "-"), i.Name, i.Status}
		switch {
		case i.Prunable:
			row = append(row, "yes")
		case prune:
			row = append(row, "no: "+i.Kept)
		}
		rows = append(rows, row)
	}
	return rows
}
