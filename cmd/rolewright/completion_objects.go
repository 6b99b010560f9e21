package main

import (
	"context"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	plaintext "github.com/rolewright/rolewright/internal/text"
)

// kindsAndNames offers what the current cluster has: kinds that are not Kubernetes' own, and
// names of objects after KIND/ or, if words is true, as further arguments.
func kindsAndNames(words bool, namespace *string) completion {
	return func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		const nothing = cobra.ShellCompDirectiveNoFileComp
		ctx, cancel := context.WithTimeout(cmd.Context(), completionPatience)
		defer cancel()
		found, err := findCluster(os.LookupEnv)
		if err != nil {
			return nil, nothing
		}
		found.config = found.within(completionPatience)
		kind, _, named := strings.Cut(begun, "/")
		before := kind + "/"
		switch {
		case words && len(args) > 0:
			kind, before = args[0], ""
		case !named && words:
			return customKinds(found.config, ""), nothing
		case !named:
			return customKinds(found.config, "/"), nothing | cobra.ShellCompDirectiveNoSpace
		}
		names, err := namesOf(ctx, found, kind, *namespace)
		if err != nil {
			return nil, nothing
		}
		var offered []string
		for _, name := range names {
			if !slices.Contains(args, before+name) {
				offered = append(offered, before+name)
			}
		}
		return offered, nothing
	}
}

// customKinds returns the kinds that are not Kubernetes' own, in lower case. A kind that
// several groups have gets its group. end is appended to each name.
func customKinds(config *rest.Config, end string) []string {
	disco, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil
	}
	lists, _ := disco.ServerPreferredResources() // a partial answer will do
	groups := map[string][]string{}
	for _, list := range lists {
		group, _, _ := strings.Cut(list.GroupVersion, "/")
		if !strings.Contains(group, ".") || strings.HasSuffix(group, ".k8s.io") {
			continue
		}
		for _, r := range list.APIResources {
			if kind := strings.ToLower(r.Kind); !strings.Contains(r.Name, "/") && slices.Contains(r.Verbs, "list") {
				groups[kind] = append(groups[kind], group)
			}
		}
	}
	var kinds []string
	for kind, of := range groups {
		for _, group := range of {
			name := kind
			if len(of) > 1 {
				name += "." + group
			}
			kinds = append(kinds, plaintext.Plain(name)+end)
		}
	}
	slices.Sort(kinds)
	return kinds
}

// namesOf returns the names of the objects of a kind.
func namesOf(ctx context.Context, found cluster, kind, namespace string) ([]string, error) {
	c, err := (&selectOptions{namespace: namespace}).objectsIn(found, kind)
	if err != nil {
		return nil, err
	}
	client, err := metadata.NewForConfig(found.config)
	if err != nil {
		return nil, err
	}
	list, err := client.Resource(c.resource).Namespace(c.namespace).List(ctx, metav1.ListOptions{Limit: offeredNames})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, o := range list.Items {
		names = append(names, plaintext.Plain(o.Name))
	}
	return names, nil
}
