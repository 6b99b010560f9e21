package main

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/rolewright/rolewright/controller/scenario"
)

// devRunnerRoot returns where dev, once and test keep the directories of their runs; empty
// if the user has no cache directory.
func devRunnerRoot() string {
	cache, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(cache, "rolewright", "dev")
}

// showDevRoot makes the help show where these runs are.
func showDevRoot(fs *pflag.FlagSet) {
	fs.Lookup("runner-root").DefValue = "~/.cache/rolewright/dev"
}

// gatherAsDeployed sets ANSIBLE_GATHERING as the project's Deployment does, unless it is set
// already. Then runs on this machine gather facts if runs in the Pod do.
func gatherAsDeployed() error {
	if _, set := os.LookupEnv(envGathering); set {
		return nil
	}
	containers, _ := deployedContainers() // a file that cannot be read is left to kubectl to report
	for _, c := range containers {
		for _, e := range c.Env {
			if e.Name == envGathering && e.Value != "" {
				return os.Setenv(envGathering, e.Value)
			}
		}
	}
	return nil
}

// completeAsDeployed is complete for a command that makes runs on this machine.
func (o *runOptions) completeAsDeployed(fs *pflag.FlagSet) error {
	if err := gatherAsDeployed(); err != nil {
		return err
	}
	_, err := o.complete(sources{given: fs.Changed, lookupEnv: os.LookupEnv})
	return usage(errors.Join(err, o.completeLog(fs)))
}

// deployedContainers returns the containers of the Deployments in the manifest of the project in this directory.
func deployedContainers() (all []corev1.Container, err error) {
	f, err := os.Open(managerManifest)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	objects, err := scenario.Decode(bufio.NewReader(f))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", managerManifest, err)
	}
	for _, u := range objects {
		var d appsv1.Deployment
		if u.GetKind() == "Deployment" && runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &d) == nil {
			all = append(all, d.Spec.Template.Spec.Containers...)
		}
	}
	return all, nil
}

// startCluster is the command for people without a cluster.
const startCluster = `eval "$(rolewright cluster up --download)"`

// needWatches fails if the watches file does not exist at the start, instead of waiting for it.
func needWatches(file string) error {
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		return usage(fmt.Errorf("there is no %s; pass the path of the file, or run in its directory; \"rolewright init\" creates a project", file))
	}
	return nil
}
