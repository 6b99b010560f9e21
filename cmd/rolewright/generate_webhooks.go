package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/rolewright/rolewright/internal/admission"
	"github.com/rolewright/rolewright/internal/watches"
)

func newGenerateWebhooksCommand() *cobra.Command {
	// Kinds are found as for "generate rbac".
	var o generateRBACOptions
	cmd := &cobra.Command{
		Use:   "webhooks",
		Short: "Write the policies by which the API server checks and fills in objects",
		Long: `Write the ValidatingAdmissionPolicies and MutatingAdmissionPolicies, with their
bindings, for "webhooks:" in the watches file. The API server itself evaluates them:
there is no server of the operator's in the way of a request.

Policies are in no namespace, and named after the kind. Who installs them needs the
permission to do so; the operator needs none. Rules hold from Kubernetes 1.30 on,
mutations from 1.36 on.

The resources of kinds are those of the CustomResourceDefinitions in --crd-dir and
Kubernetes' own. Others are looked up in the cluster, if there is a kubeconfig.`,
		Example: `  rolewright generate webhooks | kubectl apply -f -
  rolewright generate webhooks --namespace caches --output config/webhooks/policies.yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.webhooks(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&o.watchesFile, "watches-file", "./watches.yaml", "The file that says which kinds are watched.")
	fs.StringSliceVarP(&o.namespaces, "namespace", "n", nil, "Write policies for the objects of this namespace only; several, with commas or by repeating the flag.")
	fs.StringVarP(&o.output, "output", "o", "", "Write to this file; to the standard output if empty.")
	fs.StringVar(&o.definitions, "crd-dir", defaultDefinitions, "A directory with CustomResourceDefinitions.")
	fs.BoolVar(&o.offline, "offline", false, "Ask no cluster.")
	completeFlag(cmd, "output", files("yaml", "yml"))
	completeFlag(cmd, "namespace", fromCluster(namespaces))
	o.name, o.scan = "webhooks", true
	return cmd
}

// webhooks writes the policies.
func (o *generateRBACOptions) webhooks(ctx context.Context, stdout, stderr io.Writer) error {
	if err := o.validate(); err != nil {
		return usage(err)
	}
	watched, problems, err := watches.Load(o.watchesFile, watches.Options{LookupEnv: os.LookupEnv})
	if err != nil {
		return usage(problemsError(err, problems))
	}
	if !slices.ContainsFunc(watched, func(w watches.Watch) bool { return !w.Webhooks.IsZero() }) {
		return usage(fmt.Errorf("%s has no webhooks: in any watch: there is nothing to write", o.watchesFile))
	}
	find, err := o.finder(ctx, stderr)
	if err != nil {
		return err
	}
	objects, err := admission.Policies(watched, o.namespaces, func(gvk schema.GroupVersionKind) (string, error) {
		if r, ok := find(gvk.GroupVersion().String(), gvk.Kind); ok {
			return r.Name, nil
		}
		return "", fmt.Errorf("what the resource of %s is called is not known: put its CustomResourceDefinition into --crd-dir, or install it", gvk)
	})
	if err != nil {
		return usage(err)
	}
	text, err := yamlStream(objects)
	if err != nil {
		return err
	}
	if o.output == "" {
		_, err = stdout.Write(text)
		return err
	}
	if err := os.WriteFile(o.output, text, 0o644); err != nil {
		return fmt.Errorf("--output: %w", err)
	}
	return nil
}

func yamlStream(objects []*unstructured.Unstructured) ([]byte, error) {
	var out bytes.Buffer
	for _, o := range objects {
		text, err := yaml.Marshal(o.Object)
		if err != nil {
			return nil, fmt.Errorf("encode %s: %w", o.GetName(), err)
		}
		out.WriteString("---\n")
		out.Write(text)
	}
	return out.Bytes(), nil
}

// policyDelay is longer than the API server takes to heed a policy that was applied: it
// looks each second, and says nowhere that it has.
const policyDelay = 3 * time.Second

// policies applies the policies of the watches, for whose kinds CRDs are installed, and
// waits until they hold.
func (a *applier) policies(ctx context.Context, watched []watches.Watch) error {
	objects, err := admission.Policies(watched, nil, func(gvk schema.GroupVersionKind) (string, error) {
		m, err := a.client.RESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version)
		if err != nil {
			return "", err
		}
		return m.Resource.Resource, nil
	})
	for _, o := range objects {
		if failed := a.one(ctx, o, ""); failed != nil {
			err = errors.Join(err, fmt.Errorf("%s %s: %w", o.GetKind(), o.GetName(), failed))
		}
	}
	if len(objects) > 0 && err == nil {
		select {
		case <-ctx.Done():
		case <-time.After(policyDelay):
		}
	}
	return err
}
