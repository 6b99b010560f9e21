package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"

	"github.com/rolewright/rolewright/controller/assembly"
	"github.com/rolewright/rolewright/internal/content"
	"github.com/rolewright/rolewright/internal/doctor"
	"github.com/rolewright/rolewright/internal/limits"
	"github.com/rolewright/rolewright/internal/rbac"
	"github.com/rolewright/rolewright/internal/rbac/tasks"
	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/runner/libraries"
)

// dpkgStatus is where Debian keeps the versions of its packages.
const dpkgStatus = "/var/lib/dpkg/status"

// runnerVersion returns the version of ansible-runner. Debian builds it without a
// version, as 0.0.0: then it returns the version of Debian's package.
func runnerVersion(v runner.Versions) string {
	if v.Runner != "0.0.0" {
		return v.Runner
	}
	version, _, _ := strings.Cut(debianVersion(dpkgStatus, "python3-ansible-runner"), "-")
	return cmp.Or(version, v.Runner)
}

// debianVersion returns the version of an installed Debian package according to dpkg's status
// file. It is empty if the package is not installed, or this is not Debian.
func debianVersion(statusFile, name string) string {
	data, err := os.ReadFile(statusFile)
	if err != nil {
		return ""
	}
	for entry := range strings.SplitSeq(string(data), "\n\n") {
		if !strings.HasPrefix(entry, "Package: "+name+"\n") || !strings.Contains(entry, "\nStatus: install ok installed\n") {
			continue
		}
		_, version, _ := strings.Cut(entry, "\nVersion: ")
		version, _, _ = strings.Cut(version, "\n")
		return version
	}
	return ""
}

// interpreter returns the Python of ansible-core; empty if it does not say.
func interpreter(v runner.Versions) string {
	_, path, _ := strings.Cut(v.Python, "(")
	return strings.TrimSuffix(path, ")")
}

// needsNoAnsible is true if the watches can be read and all of them run commands.
func (o *doctorOptions) needsNoAnsible() bool {
	watched, _, err := watches.Load(o.watchesFile, watches.Options{LookupEnv: o.lookupEnv})
	return err == nil && assembly.OnlyCommands(watched)
}

func (o *doctorOptions) checkAnsible(ctx context.Context) []doctor.Finding {
	if o.needsNoAnsible() {
		return []doctor.Finding{{Check: "Ansible", State: doctor.OK, Found: "is not needed: all watches run commands"}}
	}
	r := runner.New(runner.Options{Path: o.ansibleRunner})
	defer r.Close()
	v, err := r.Check(ctx)
	if err != nil {
		return []doctor.Finding{{
			Check: "Ansible", State: doctor.Failed, Found: err.Error(), Remedy: "install ansible-core and ansible-runner, or see --ansible-runner",
		}}
	}
	found := []doctor.Finding{
		{Check: "Ansible", State: doctor.OK, Found: fmt.Sprintf("ansible-core %s, ansible-runner %s, Python %s", v.Core, runnerVersion(v), v.Python)},
	}
	return append(found, o.checkLibraries(ctx, v)...)
}

// checkLibraries looks for the Python libraries that kubernetes.core needs, where modules on
// localhost look for them.
func (o *doctorOptions) checkLibraries(ctx context.Context, v runner.Versions) []doctor.Finding {
	python := interpreter(v)
	if venv := os.Getenv("VIRTUAL_ENV"); venv != "" {
		python = filepath.Join(venv, "bin", "python3")
	}
	if python == "" {
		return []doctor.Finding{{Check: "Kubernetes client", State: doctor.LeftOut, Found: "the Python of ansible-playbook cannot be determined"}}
	}
	l, err := libraries.Find(ctx, python, os.Environ(), assembly.CollectionsDirs(o.lookupEnv))
	if err != nil {
		return []doctor.Finding{{
			Check: "Kubernetes client", State: doctor.Failed, Found: err.Error(), Remedy: "set VIRTUAL_ENV to a Python virtual environment, or unset it",
		}}
	}
	lacks := doctor.Finding{State: doctor.Note, Found: "is not installed: only tasks with modules of kubernetes.core need it"}
	if o.usesKubernetesCore() {
		lacks = doctor.Finding{State: doctor.Failed, Found: "is not installed, and tasks of the watches use modules of kubernetes.core"}
	}
	library := func(check, version, remedy string) doctor.Finding {
		if version != "" {
			return doctor.Finding{Check: check, State: doctor.OK, Found: version}
		}
		f := lacks
		f.Check, f.Remedy = check, remedy
		return f
	}
	return []doctor.Finding{
		library("Kubernetes client", l.Client, "install the Python package kubernetes for "+python),
		library("kubernetes.core", l.Core, "install it: ansible-galaxy collection install kubernetes.core"),
	}
}

// usesKubernetesCore reports whether a task of the watches names a module of kubernetes.core, as far as roles and playbooks
// can be read.
func (o *doctorOptions) usesKubernetesCore() bool {
	watched, _, err := watches.Load(o.watchesFile, watches.Options{LookupEnv: o.lookupEnv})
	if err != nil {
		return false // another check says so
	}
	for _, w := range watched {
		for _, c := range w.Contents() {
			if !c.Ansible() {
				continue
			}
			report, _ := tasks.Scan(content.Content{Playbook: c.Playbook, Role: c.Role},
				content.Options{RolesPath: assembly.RolesDirs(o.lookupEnv), CollectionsPath: installedCollections(o.lookupEnv)})
			if report.KubernetesCore {
				return true
			}
		}
	}
	return false
}

func (o *doctorOptions) checkExecutor(ctx context.Context) []doctor.Finding {
	if o.needsNoAnsible() {
		return nil
	}
	if watches.Executor(o.executor) == watches.ExecutorRunner {
		return []doctor.Finding{{Check: "executor", State: doctor.OK, Found: "ansible-runner is started for each run"}}
	}
	pool := runner.NewPool(runner.Options{Path: o.ansibleRunner, TrustLine: o.trustLine}, nil)
	defer pool.Close()
	f := doctor.Finding{Check: "executor", State: doctor.OK, Found: "runs can be forked"}
	if err := pool.Wait(ctx); err != nil {
		f.State, f.Found = doctor.Note, "runs are not forked, each starts a new Python: "+err.Error()
		if watches.Executor(o.executor) == watches.ExecutorWarm {
			f.State = doctor.Failed
		}
	}
	return []doctor.Finding{f}
}

func (o *doctorOptions) checkPlaces(context.Context) []doctor.Finding {
	_, err := os.Stat(podNamespaceFile)
	alone := err == nil
	places := []doctor.Place{
		{Check: "runner root", Path: o.runnerRoot, Made: true, Alone: alone, Remedy: "choose another with --runner-root: a directory of a volume that only the operator's user can write"},
		{Check: "TMPDIR", Path: os.TempDir(), Alone: alone, Remedy: "set TMPDIR to a directory on a volume"},
		{Check: "HOME", Path: os.Getenv("HOME"), Optional: true, ReadOnly: true, Alone: alone, Remedy: "runs are given a home of their own, but forked runs need one that exists: set HOME to a directory"},
	}
	for _, name := range []string{"ANSIBLE_HOME", "ANSIBLE_LOCAL_TEMP", "ANSIBLE_REMOTE_TEMP", "ANSIBLE_REMOTE_TMP"} {
		path := os.Getenv(name)
		if path == "" {
			continue // runs have directories of their own
		}
		if rest, home := strings.CutPrefix(path, "~/"); home {
			path = filepath.Join(os.Getenv("HOME"), rest)
		}
		places = append(places, doctor.Place{Check: name, Path: path, Made: true, Alone: alone, Remedy: "unset " + name + ", or set it to a directory on a volume"})
	}
	var found []doctor.Finding
	for _, p := range places {
		found = append(found, doctor.CheckPlace(p))
	}
	return append(found, doctor.CheckAccounts("/etc/passwd"))
}

// checkProject checks the watches file and what depends on it.
func (o *doctorOptions) checkProject(ctx context.Context) []doctor.Finding {
	watched, problems, err := watches.Load(o.watchesFile, watches.Options{
		LookupEnv: o.lookupEnv, Defaults: watches.Defaults{MaxConcurrentReconciles: max(1, o.maxConcurrent)},
	})
	runs := 0
	for _, w := range watched {
		runs += w.MaxConcurrentReconciles
	}
	runs = min(runs, assembly.RunsAtATime(o.maxRuns, watched))
	found := doctor.CheckLimits(limits.Find("/").Limits(), max(1, runs))
	f := doctor.Finding{Check: "watches", State: doctor.OK, Found: fmt.Sprintf("%s is valid: %s", o.watchesFile, counted(len(watched), "watch", "watches"))}
	if _, missing := os.Stat(o.watchesFile); missing != nil {
		f.State, f.Found, f.Remedy = doctor.Failed, o.watchesFile+" does not exist", "pass the file with --watches-file, or run in its directory; \"rolewright init\" creates a project"
		return append(found, f)
	}
	if err != nil {
		f.State, f.Found, f.Remedy = doctor.Failed, strings.ReplaceAll(problemsError(err, problems).Error(), "\n  ", "; "), "see \"rolewright validate\""
		return append(found, f)
	}
	return append(append(found, f), o.checkCluster(ctx, watched)...)
}

// checkCluster checks what the cluster has for the watches.
func (o *doctorOptions) checkCluster(ctx context.Context, watched []watches.Watch) []doctor.Finding {
	notChecked := func(why string) []doctor.Finding {
		return []doctor.Finding{
			{Check: "kinds", State: doctor.LeftOut, Found: why},
			{Check: "permissions", State: doctor.LeftOut, Found: why},
		}
	}
	failed := func(why, remedy string) []doctor.Finding {
		f := doctor.Finding{Check: "cluster", State: doctor.Failed, Found: why, Remedy: remedy + ", or pass --offline"}
		return append([]doctor.Finding{f}, notChecked("there is no cluster")...)
	}
	if o.offline {
		return notChecked("--offline")
	}
	c, err := findCluster(os.LookupEnv)
	if err != nil {
		return failed(err.Error(), "set KUBECONFIG")
	}
	config := c.within(discoverTimeout)
	config.Impersonate.UserName = o.user
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return failed(err.Error(), "set KUBECONFIG")
	}
	began := time.Now()
	if _, err := client.Discovery().ServerVersionWithContext(ctx); err != nil {
		return failed(fmt.Sprintf("%s does not answer: %v", c, err), "check its address, and that it runs")
	}
	found := []doctor.Finding{{Check: "cluster", State: doctor.OK, Found: fmt.Sprintf("%s answers within %s", c, time.Since(began).Round(time.Millisecond))}}
	for _, w := range watched {
		of := doctor.CheckKind(ctx, client, doctor.Kind{
			GroupVersionKind: w.GVK, Status: w.ManageStatus,
			Replaced: func(declared []string) []string {
				return replaceable(w, declared, assembly.RolesDirs(o.lookupEnv))
			},
		})
		// Two watches of one kind have the same findings.
		found = append(found, slices.DeleteFunc(of, func(f doctor.Finding) bool { return slices.Contains(found, f) })...)
	}
	found = append(found, o.checkPermissions(ctx, client, watched)...)
	return append(found, o.checkJobs(ctx, client, watched)...)
}

// checkPermissions asks for the permissions that generate rbac would write.
func (o *doctorOptions) checkPermissions(ctx context.Context, client kubernetes.Interface, watched []watches.Watch) []doctor.Finding {
	failed := func(state doctor.State, err error) []doctor.Finding {
		return []doctor.Finding{{Check: "permissions", State: state, Found: err.Error()}}
	}
	known, err := finder(ctx, o.definitions, true, io.Discard)
	if err != nil {
		return failed(doctor.Failed, err)
	}
	_, lists, err := client.Discovery().ServerGroupsAndResourcesWithContext(ctx)
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		return failed(doctor.LeftOut, err)
	}
	served := rbac.FromDiscovery(lists)
	out, err := rbac.Generate(rbac.Input{
		WatchesFile: o.watchesFile, Watches: watched, InjectOwnerRef: true, Scan: true,
		RolesPath: assembly.RolesDirs(o.lookupEnv), CollectionsPath: installedCollections(o.lookupEnv),
		Find: func(apiVersion, kind string) (rbac.Resource, bool) {
			if r, ok := served.Find(apiVersion, kind); ok {
				return r, true
			}
			return known(apiVersion, kind)
		},
	})
	if err != nil {
		return failed(doctor.Failed, err)
	}
	found, err := doctor.CheckPermissions(ctx, client, out.Needs, splitNamespaces(os.Getenv(envWatchNamespace)))
	if err != nil {
		return failed(doctor.LeftOut, err)
	}
	own, err := o.checkOwnPermissions(ctx, client)
	if err != nil {
		return failed(doctor.LeftOut, err)
	}
	found = append(found, own...)
	if len(out.Gaps) > 0 {
		found = append(found, doctor.Finding{
			Check: "permissions", State: doctor.Note, Found: counted(len(out.Gaps), "place in the content does", "places in the content do") + " not say what is needed",
			Remedy: "see \"rolewright generate rbac\"",
		})
	}
	return found
}

// checkOwnPermissions asks for the permissions that do not depend on the watches.
func (o *doctorOptions) checkOwnPermissions(ctx context.Context, client kubernetes.Interface) ([]doctor.Finding, error) {
	var found []doctor.Finding
	services := []doctor.Service{doctor.Reviews(o.requireRBAC)}
	namespaces := splitNamespaces(os.Getenv(envWatchNamespace))
	if len(namespaces) == 0 {
		namespaces = []string{""} // all
	}
	for _, namespace := range namespaces {
		services = append(services, doctor.Events(namespace))
	}
	if namespace := o.leaseNamespace(); namespace != "" {
		services = append(services, doctor.Lease(namespace, o.leaderElect))
		if o.shards > 0 {
			services = append(services, doctor.Shards(namespace))
		}
	} else if o.leaderElect {
		found = append(found, doctor.Finding{
			Check: "permissions", State: doctor.LeftOut, Found: "those for the Lease of leader election: its namespace is not known",
			Remedy: "name it with --leader-election-namespace",
		})
	}
	for _, s := range services {
		more, err := s.Check(ctx, client)
		if err != nil {
			return nil, err
		}
		found = append(found, more...)
	}
	return found, nil
}

// leaseNamespace returns the namespace in which the operator would have its Lease; empty if
// it is not known.
func (o *doctorOptions) leaseNamespace() string {
	if o.leaderNamespace != "" {
		return o.leaderNamespace
	}
	if account, ok := strings.CutPrefix(o.user, "system:serviceaccount:"); ok {
		namespace, _, _ := strings.Cut(account, ":")
		return namespace
	}
	return podNamespace()
}
