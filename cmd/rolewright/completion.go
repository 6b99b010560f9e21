package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"

	"github.com/rolewright/rolewright/controller/runstore"
	"github.com/rolewright/rolewright/internal/lint"
	"github.com/rolewright/rolewright/internal/watches"

	plaintext "github.com/rolewright/rolewright/internal/text"
)

// completion offers values for an argument or a flag. It prints no errors: a
// completion that fails offers nothing.
type completion = cobra.CompletionFunc

// completeRoot adds completions to all commands, for arguments and flags that have none of their own.
func completeRoot(root *cobra.Command) {
	// Files are offered where files are wanted, and nowhere else.
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	byName := map[string]completion{
		"ansible-collections-path": directories, "ansible-roles-path": directories, "crd-dir": directories, "dir": directories, "runner-root": directories,
		"ansible-runner": files(), "api-calls": files(), "junit": files("xml"), "record-api-calls": files(),
		"filename": files("yaml", "yml", "json"), "playbook": files("yml", "yaml"), "watches-file": files("yaml", "yml"),

		"ansible-log-events": fixed("Tasks", "Everything", "Nothing"),
		"crd-from":           fixed("argspec", "defaults", "none"),
		"executor":           fixed("auto", "warm", "runner", "job"),
		"from":               fixed("argspec", "defaults"),
		"output":             fixed(outputText, outputJSON),
		"log-format":         fixed("console", "json", "logfmt"),
		"zap-encoder":        fixed("console", "json"),
		"zap-log-level":      fixed("debug", "info", "error"),

		"role":                      roles,
		"leader-election-namespace": fromCluster(namespaces),
		"operator-namespace":        fromCluster(namespaces),
		"as":                        fromCluster(serviceAccounts),
	}
	all := []*cobra.Command{root}
	for len(all) > 0 {
		cmd := all[0]
		all = append(all[1:], cmd.Commands()...)
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if _, has := cmd.GetFlagCompletionFunc(f.Name); !has && byName[f.Name] != nil {
				completeFlag(cmd, f.Name, byName[f.Name])
			}
		})
	}
}

// completeFlag adds the completion of a flag that cmd has.
func completeFlag(cmd *cobra.Command, flag string, c completion) {
	// An error means that there is no such flag: nothing is offered for it then.
	_ = cmd.RegisterFlagCompletionFunc(flag, c)
}

// oneOf makes a flag of cmd accept only these words, and offers them.
func oneOf(cmd *cobra.Command, flag string, words ...string) {
	completeFlag(cmd, flag, fixed(words...))
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		return among(flag, cmd.Flag(flag).Value.String(), words...)
	}
}

// textOrJSON adds --output to a command that prints things as text or JSON.
func textOrJSON(cmd *cobra.Command, output *string, things string) {
	cmd.Flags().StringVarP(output, "output", "o", outputText, "How to print the "+things+": text or json.")
	oneOf(cmd, "output", outputText, outputJSON)
}

// among refuses a flag's value that is not one of these words.
func among(flag, value string, words ...string) error {
	if slices.Contains(words, value) {
		return nil
	}
	last := len(words) - 1
	return usage(fmt.Errorf("--%s must be %s or %s, not %q", flag, strings.Join(words[:last], ", "), words[last], value))
}

// fixed offers these words.
func fixed(words ...string) completion {
	return cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)
}

// files makes the shell offer files with one of the endings, or all files.
func files(endings ...string) completion {
	directive := cobra.ShellCompDirectiveFilterFileExt
	if len(endings) == 0 {
		directive = cobra.ShellCompDirectiveDefault
	}
	return cobra.FixedCompletions(endings, directive)
}

// directories makes the shell offer directories.
func directories(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveFilterDirs
}

// onlyFirst offers values for the first argument only.
func onlyFirst(c completion) completion {
	return func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return c(cmd, args, toComplete)
	}
}

// roles offers the names of the roles of the project in this directory.
func roles(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	names := slices.DeleteFunc(projectRoles(), func(name string) bool { return slices.Contains(args, name) })
	return names, cobra.ShellCompDirectiveNoFileComp
}

// definedKinds offers the kinds of the project's CRDs.
func definedKinds(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	var kinds []string
	if definitions, err := lint.ReadDefinitions(globbed(kindDefinitions)); err == nil {
		for gvk := range definitions {
			kinds = append(kinds, gvk.Kind)
		}
	}
	slices.Sort(kinds)
	return slices.Compact(kinds), cobra.ShellCompDirectiveNoFileComp
}

// watchedKinds offers the kinds of the watches file that are not among the arguments.
func watchedKinds(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	file := "watches.yaml"
	if f := cmd.Flags().Lookup("watches-file"); f != nil {
		file = f.Value.String()
	}
	watched, _, _ := watches.Load(file, watches.Options{LookupEnv: os.LookupEnv})
	var kinds []string
	for _, w := range watched {
		if !slices.Contains(args, w.GVK.Kind) && !slices.Contains(kinds, w.GVK.Kind) {
			kinds = append(kinds, w.GVK.Kind)
		}
	}
	return kinds, cobra.ShellCompDirectiveNoFileComp
}

// offeredRuns is how many runs are offered.
const offeredRuns = 50

// completeRuns offers the latest runs below the runner roots with their objects. Once a
// path has been started, it offers directories.
func (o *replayOptions) completeRuns(cmd *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
	if strings.Contains(begun, "/") {
		return nil, cobra.ShellCompDirectiveFilterDirs
	}
	var ids []string
	for _, root := range o.roots(cmd) {
		for _, t := range runstore.Latest(root, begun, offeredRuns) {
			ids = append(ids, cobra.CompletionWithDesc(t.Run, plaintext.Plain(strings.Trim(t.Kind+" "+t.Namespace+"/"+t.Name, "/"))))
		}
	}
	return ids, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}

const (
	// completionPatience is how long the cluster may take to answer.
	completionPatience = 2 * time.Second
	// offeredNames limits how many names are requested from the cluster.
	offeredNames = 500
)

// lister asks the cluster for names of its objects.
type lister func(ctx context.Context, client metadata.Interface, begun string) ([]string, error)

// fromCluster offers what the current cluster answers within completionPatience, and nothing
// if it does not answer.
func fromCluster(list lister) completion {
	return func(cmd *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completionPatience)
		defer cancel()
		names, err := func() ([]string, error) {
			c, err := findCluster(os.LookupEnv)
			if err != nil {
				return nil, err
			}
			config := c.within(completionPatience)
			client, err := metadata.NewForConfig(config)
			if err != nil {
				return nil, err
			}
			return list(ctx, client, begun)
		}()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// objectsOf returns a resource's objects, in one namespace or, if it is empty, in all.
func objectsOf(ctx context.Context, client metadata.Interface, resource, namespace string) ([]metav1.PartialObjectMetadata, error) {
	list, err := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: resource}).Namespace(namespace).List(ctx, metav1.ListOptions{Limit: offeredNames})
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", resource, err)
	}
	return list.Items, nil
}

// namespaces returns the names of the cluster's namespaces.
func namespaces(ctx context.Context, client metadata.Interface, begun string) ([]string, error) {
	before := begun[:strings.LastIndex(begun, ",")+1] // the earlier entries of a list
	objects, err := objectsOf(ctx, client, "namespaces", "")
	var names []string
	for _, o := range objects {
		names = append(names, before+o.Name)
	}
	return names, err
}

// serviceAccounts returns the service accounts of the cluster, or of the namespace typed so
// far, in the form system:serviceaccount:NAMESPACE:NAME.
func serviceAccounts(ctx context.Context, client metadata.Interface, begun string) ([]string, error) {
	const prefix = "system:serviceaccount:"
	namespace, _, chosen := strings.Cut(strings.TrimPrefix(begun, prefix), ":")
	if !chosen || !strings.HasPrefix(begun, prefix) {
		namespace = ""
	}
	objects, err := objectsOf(ctx, client, "serviceaccounts", namespace)
	var names []string
	for _, o := range objects {
		names = append(names, prefix+o.Namespace+":"+o.Name)
	}
	return names, err
}
