package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rolewright/rolewright/controller"

	plaintext "github.com/rolewright/rolewright/internal/text"
)

func newTreeCommand() *cobra.Command {
	var o selectOptions
	output := outputText
	cmd := &cobra.Command{
		Use:   "tree KIND/NAME",
		Short: "Show what an object owns, and what that owns, each with its readiness",
		Long: `Show what an object owns, of the kinds that its status records; what these own, such as
the Pods of a Deployment; and so on. Each has the status that kstatus computes. It reads
with your rights, and does not contact the operator. "rolewright inventory" says what prune
removes.`,
		Example: `  rolewright tree memcached/sample -n default`,
		Args:    oneArgument("give an object, such as memcached/sample"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !strings.Contains(args[0], "/") {
				return usage(fmt.Errorf("%q is not an object: give KIND/NAME, such as memcached/sample", args[0]))
			}
			return o.tree(cmd, args, output)
		},
	}
	cmd.Flags().StringVarP(&o.namespace, "namespace", "n", "", "The namespace of the object. The default is that of the kubeconfig.")
	textOrJSON(cmd, &output, "tree")
	cmd.ValidArgsFunction = onlyFirst(kindsAndNames(false, &o.namespace))
	return cmd
}

func (o *selectOptions) tree(cmd *cobra.Command, args []string, output string) error {
	kind, names, err := parseObjects(args)
	if err != nil {
		return err
	}
	found, err := findCluster(os.LookupEnv)
	if err != nil {
		return unreachable(err)
	}
	c, err := o.objectsIn(found, kind)
	if err != nil {
		return err
	}
	objects, err := c.list(cmd.Context(), o, names)
	if err != nil {
		return err
	}
	a, err := newApplier(found, nil)
	if err != nil {
		return unreachable(err)
	}
	node, err := controller.Tree(cmd.Context(), a.client, &objects[0])
	if output == outputJSON {
		if printed := printJSON(cmd.OutOrStdout(), node); printed != nil {
			return printed
		}
	} else if printed := printTree(cmd.OutOrStdout(), node); printed != nil {
		return printed
	}
	if errors.Is(err, controller.ErrTreeCut) {
		return err
	}
	return unreachable(err)
}

func printTree(out io.Writer, root controller.Node) error {
	rows := [][]string{{"OBJECT", "STATUS", "MESSAGE"}}
	var add func(n controller.Node, first, rest string)
	add = func(n controller.Node, first, rest string) {
		name := n.Kind + "/" + n.Name
		if n.Namespace != root.Namespace && n.Namespace != "" {
			name += " in " + n.Namespace
		}
		rows = append(rows, []string{first + name, n.Status, plaintext.Clip(n.Message, maxShownMessage)})
		for i, child := range n.Owns {
			if i < len(n.Owns)-1 {
				add(child, rest+"├─ ", rest+"│  ")
			} else {
				add(child, rest+"└─ ", rest+"   ")
			}
		}
	}
	add(root, "", "")
	return (&table{out: out}).print(rows...)
}
