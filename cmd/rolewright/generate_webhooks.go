package main

import (
	"bytes"
	"cmp"
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
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/rolewright/rolewright/internal/admission"
	"github.com/rolewright/rolewright/internal/scaffold"
	"github.com/rolewright/rolewright/internal/watches"
)

func newGenerateWebhooksCommand() *cobra.Command {
	var o generateWebhooksOptions
	cmd := &cobra.Command{
		Use:   "webhooks",
		Short: "Write admission policies, webhook configurations and what else \"webhooks:\" needs",
		Long: `Write the ValidatingAdmissionPolicies and MutatingAdmissionPolicies, with their
bindings, for the expressions of "webhooks:" in the watches file. The API server itself
evaluates them: requests do not pass through the operator. Rules need Kubernetes 1.30 or
later, mutations 1.36 or later.

For commands and conversions, the API server calls the operator. If there are any, write
the webhook configurations too, the operator's Service and the permissions to keep its
certificate, or with --cert-manager an Issuer and a Certificate. Start the operator with
--webhook-service NAMESPACE/NAME-webhook, or with --webhook-cert-dir. The Service selects
Pods with the label app.kubernetes.io/name: NAME, or with the label control-plane if the
Deployment in config/manager/manager.yaml has only that, as operator-sdk writes it.

Policies and configurations are cluster-scoped, and named after the kind. You need the
permission to create them.

The resources of kinds are those of the CustomResourceDefinitions in --crd-dir and
Kubernetes' own. Others are looked up in the cluster, if there is a kubeconfig.`,
		Example: `  rolewright generate webhooks | kubectl apply -f -
  rolewright generate webhooks --namespace caches --output config/webhooks/policies.yaml`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&o.watchesFile, "watches-file", "./watches.yaml", "The file that says which kinds are watched.")
	fs.StringSliceVarP(&o.namespaces, "namespace", "n", nil, "Write policies for the objects of this namespace only; several, with commas or by repeating the flag.")
	fs.StringVarP(&o.output, "output", "o", "", "Write to this file; to the standard output if empty.")
	fs.StringVar(&o.definitions, "crd-dir", defaultDefinitions, "A directory with CustomResourceDefinitions.")
	fs.BoolVar(&o.offline, "offline", false, "Do not contact the cluster.")
	fs.StringVar(&o.install.Name, "name", "", "The operator's name, with which the name of its service account begins; that of PROJECT if empty.")
	fs.StringVar(&o.install.Namespace, "operator-namespace", "", "The operator's namespace; NAME-system if empty.")
	fs.BoolVar(&o.install.CertManager, "cert-manager", false, "Let cert-manager make the certificate, instead of the operator.")
	completeFlag(cmd, "output", files("yaml", "yml"))
	completeFlag(cmd, "namespace", fromCluster(namespaces))
	return cmd
}

// generateWebhooksOptions are the flags of rolewright generate webhooks.
type generateWebhooksOptions struct {
	watchesFile, output, definitions string
	namespaces                       []string
	offline                          bool
	install                          admission.Install
}

// run writes the manifests.
func (o *generateWebhooksOptions) run(ctx context.Context, stdout, stderr io.Writer) error {
	var err error
	if o.namespaces, err = validNamespaces(o.namespaces); err != nil {
		return usage(err)
	}
	watched, err := usableWatches(o.watchesFile, os.LookupEnv)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(watched, func(w watches.Watch) bool { return !w.Webhooks.IsZero() }) {
		return usage(fmt.Errorf("%s has no webhooks: in any watch: there is nothing to write", o.watchesFile))
	}
	find, err := finder(ctx, o.definitions, o.offline, stderr)
	if err != nil {
		return err
	}
	namer := func(gvk schema.GroupVersionKind) (string, error) {
		if r, ok := find(gvk.GroupVersion().String(), gvk.Kind); ok {
			return r.Name, nil
		}
		return "", fmt.Errorf("the resource name of %s is not known: put its CustomResourceDefinition into --crd-dir, or install it", gvk)
	}
	objects, err := admission.Policies(watched, o.namespaces, namer)
	if err != nil {
		return usage(err)
	}
	var server []byte
	if admission.NeedServer(watched) {
		if server, err = o.server(watched, &objects, namer, stderr); err != nil {
			return usage(err)
		}
	}
	text, err := yamlStream(objects)
	if err != nil {
		return err
	}
	text = append(text, server...)
	if o.output == "" {
		_, err = stdout.Write(text)
		return err
	}
	if err := os.WriteFile(o.output, text, 0o644); err != nil {
		return fmt.Errorf("--output: %w", err)
	}
	return nil
}

// server adds the configurations for the requests that the operator answers, and returns the
// manifests that its server needs.
func (o *generateWebhooksOptions) server(watched []watches.Watch, objects *[]*unstructured.Unstructured, namer admission.Namer, stderr io.Writer) ([]byte, error) {
	i := o.install
	if i.Name == "" {
		p, err := scaffold.Read(".")
		if err != nil {
			return nil, fmt.Errorf("%w; or give --name", err)
		}
		i.Name = p.Name
	}
	i.Namespace = cmp.Or(i.Namespace, i.Name+"-system")
	for flag, value := range map[string]string{"name": i.Name, "operator-namespace": i.Namespace} {
		if why := validation.IsDNS1035Label(value); len(why) > 0 {
			return nil, fmt.Errorf("--%s %q is not a name: %s", flag, value, why[0])
		}
	}
	if longest := validation.DNS1035LabelMaxLength - len("-webhook"); len(i.Name) > longest {
		return nil, fmt.Errorf("--name %q: at most %d characters, the name of the Service begins with it", i.Name, longest)
	}
	asked, err := admission.Configurations(watched, o.namespaces, i.Reach(), namer)
	if err != nil {
		return nil, err
	}
	if i.CertManager {
		for _, c := range asked {
			c.SetAnnotations(map[string]string{"cert-manager.io/inject-ca-from": i.Namespace + "/" + i.Name + "-webhook"})
		}
	}
	*objects = append(*objects, asked...)
	if labels, ok, err := scaffold.PodLabels("."); err != nil {
		return nil, err
	} else if ok {
		if note := i.Select(labels); note != "" {
			fmt.Fprintln(stderr, "note:", note)
		}
	}
	return i.YAML(watched, namer)
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

// policyDelay is longer than the API server takes to enforce a policy that was applied: it
// looks every second, and nothing shows that it has. schemaDelay is longer than it takes to
// learn the schema of a CRD that was installed: until then, apply refuses the object.
const policyDelay, schemaDelay = 3 * time.Second, 8 * time.Second

// webhooks applies what the API server needs for the watches, and waits until it is in force.
// The CRDs of their kinds are installed already. Without an address, commands are left out.
func (a *applier) webhooks(ctx context.Context, watched []watches.Watch, address string) error {
	namer := func(gvk schema.GroupVersionKind) (string, error) { return a.resource(ctx, gvk) }
	objects, err := admission.Policies(watched, nil, namer)
	if err != nil {
		return err
	}
	if address != "" {
		reach, err := admission.ParseReach(address)
		if err != nil {
			return err
		}
		asked, err := admission.Configurations(watched, nil, reach, namer)
		if err != nil {
			return err
		}
		objects = append(objects, asked...)
	}
	var errs []error
	for _, o := range objects {
		if err := a.one(ctx, o, ""); err != nil {
			errs = append(errs, fmt.Errorf("%s %s: %w", o.GetKind(), o.GetName(), err))
		}
	}
	if len(objects) > 0 && len(errs) == 0 {
		delay := policyDelay
		if slices.ContainsFunc(watched, func(w watches.Watch) bool {
			return slices.ContainsFunc(w.Webhooks.Mutate, func(m watches.Mutation) bool { return m.Apply != "" })
		}) {
			delay = schemaDelay
		}
		select {
		case <-ctx.Done():
		case <-time.After(delay):
		}
	}
	return errors.Join(errs...)
}

// resource returns the name of a kind's resource, as soon as the kind is served.
func (a *applier) resource(ctx context.Context, gvk schema.GroupVersionKind) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, installPatience)
	defer cancel()
	for {
		m, err := a.client.RESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version)
		if err == nil {
			return m.Resource.Resource, nil
		}
		select {
		case <-ctx.Done():
			return "", err
		case <-time.After(100 * time.Millisecond):
		}
	}
}
