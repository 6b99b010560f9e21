package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rolewright/rolewright/runner"
)

// workload is a playbook or role that is used to compare the executors.
type workload struct {
	name string
	// reach has the minimum and the aim for the ratio of CPU, plain ÷ forked.
	reach string
	// role is set if the workload is run like a watch's role, with facts, instead of as a playbook.
	role string
}

// allWorkloads returns the workloads in the directory workloads; its playbooks say what they are.
func allWorkloads() []workload {
	return []workload{
		{name: "reference", reach: "8, 10"}, {name: "facts", reach: "7, 10", role: "reference"}, {name: "large", reach: "6, 9"},
		{name: "manifests", reach: "4, 6"}, {name: "waits"}, {name: "commands"}, {name: "thirty"}, {name: "local"},
	}
}

// workloads returns the workloads to measure: the flag's, or else the ones with these names.
func (b *bench) workloads(names ...string) []workload {
	if b.opts.workload != "" {
		names = []string{b.opts.workload}
	}
	return slices.DeleteFunc(allWorkloads(), func(w workload) bool { return !slices.Contains(names, w.name) })
}

// workloadNames returns the names of all workloads.
func workloadNames() []string {
	var names []string
	for _, w := range allWorkloads() {
		names = append(names, w.name)
	}
	return names
}

// of returns the content of a workload. Any other playbook in the directory can be named, too.
func (b *bench) of(name string) runner.Content {
	for _, w := range allWorkloads() {
		if w.name == name && w.role != "" {
			return runner.Content{Role: filepath.Join(b.copied(), "roles", w.role)}
		}
	}
	return runner.Content{Playbook: filepath.Join(b.copied(), name+".yml")}
}

// copied is the directory of the workloads, with what is made for them.
func (b *bench) copied() string { return filepath.Join(b.dir, "workloads") }

// admin is the kubeconfig of runs without an operator. It has a token, like a run's kubeconfig.
func (b *bench) admin() string { return filepath.Join(b.dir, "admin.kubeconfig") }

// prepareWorkloads makes what the workloads need.
func (b *bench) prepareWorkloads(ctx context.Context) error {
	if b.opts.workload != "" && !slices.Contains(workloadNames(), b.opts.workload) {
		return fmt.Errorf("there is no workload %q; there are %q", b.opts.workload, workloadNames())
	}
	if err := os.CopyFS(b.copied(), os.DirFS(b.opts.workloads)); err != nil {
		return err
	}
	if err := writeManifests(filepath.Join(b.copied(), "roles", "manifests")); err != nil {
		return err
	}
	return b.writeAdmin(ctx)
}

// writeAdmin makes a service account with the rights of an administrator, and its kubeconfig.
func (b *bench) writeAdmin(ctx context.Context) error {
	meta := metav1.ObjectMeta{Name: "bench-admin", Namespace: metav1.NamespaceDefault}
	account := &corev1.ServiceAccount{ObjectMeta: meta}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: meta.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: meta.Name, Namespace: meta.Namespace}},
	}
	token := &authenticationv1.TokenRequest{}
	err := errors.Join(client.IgnoreAlreadyExists(b.client.Create(ctx, account)), client.IgnoreAlreadyExists(b.client.Create(ctx, binding)))
	if err == nil {
		err = b.client.SubResource("token").Create(ctx, account, token)
	}
	if err != nil {
		return fmt.Errorf("make an account for runs: %w", err)
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["bench"] = &clientcmdapi.Cluster{Server: b.config.Host, CertificateAuthorityData: b.config.CAData}
	config.AuthInfos["bench"] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	config.Contexts["bench"] = &clientcmdapi.Context{Cluster: "bench", AuthInfo: "bench"}
	config.CurrentContext = "bench"
	return clientcmd.WriteToFile(*config, b.admin())
}
