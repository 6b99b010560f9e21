package main

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	plaintext "github.com/rolewright/rolewright/internal/text"
)

// completeRunIDs offers the latest runs of the operator with their objects and results, except
// those that are already arguments.
func (o *readerOptions) completeRunIDs(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	offered := o.offerRuns(cmd.Context(), nil, begun)
	offered = slices.DeleteFunc(offered, func(is string) bool {
		id, _, _ := strings.Cut(is, "\t")
		return slices.ContainsFunc(args, func(arg string) bool { return arg != "" && strings.HasPrefix(id, arg) })
	})
	return offered, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}

// completeRunIDsOf offers the latest runs of the object that the first argument names.
func (o *readerOptions) completeRunIDsOf(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	return o.offerRuns(cmd.Context(), args, begun), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}

// offerRuns asks the operator that the flags name for runs whose ID begins with begun, and
// offers nothing if it does not answer within completionPatience.
func (o *readerOptions) offerRuns(ctx context.Context, object []string, begun string) (offered []string) {
	ctx, cancel := context.WithTimeout(ctx, completionPatience)
	defer cancel()
	r, query, err := o.ask(ctx, object)
	if err != nil {
		return nil
	}
	defer r.close()
	query.Set("limit", strconv.Itoa(offeredNames))
	list, err := r.runs(ctx, query)
	if err != nil {
		return nil
	}
	for _, b := range list.Items {
		if len(offered) < offeredRuns && strings.HasPrefix(b.ID, begun) {
			of := b.Kind + " " + strings.TrimPrefix(b.Namespace+"/"+b.Name, "/") + " " + cmp.Or(b.Reason, "Running")
			offered = append(offered, cobra.CompletionWithDesc(plaintext.OneLine(b.ID), plaintext.OneLine(of)))
		}
	}
	return offered
}
