package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"helm.sh/helm/v4/pkg/action"
	helmchart "helm.sh/helm/v4/pkg/chart"
	"helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/kube"
	"helm.sh/helm/v4/pkg/release/common"
	release "helm.sh/helm/v4/pkg/release/v1"
	"helm.sh/helm/v4/pkg/storage/driver"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
)

// handler is one run.
type handler struct {
	in      *input
	reports *reports
	timeout time.Duration
	// deadline is when the run is stopped; zero for never.
	deadline time.Time

	config  *action.Configuration
	kube    *marking
	records *records
	// trusted is true if this program is known to have made the deployed revision.
	trusted bool
	// broken is true if the seal in the status does not match the revision.
	broken bool
	// restoring is true during a rollback.
	restoring bool
	// made are the objects that Helm's updates have created, or tried to.
	made kube.ResourceList
	// chartName is the chart's name for the label on the objects of the release; empty until it is known.
	chartName string
	chart     *v2.Chart
	values    map[string]any
	rest      *rest.Config
	discovery discovery.CachedDiscoveryInterface
	mapper    meta.ResettableRESTMapper
	// nonDeterministic names the objects that differ although the chart and the values are the same.
	nonDeterministic string
	// logs are the ends of the logs of failed hooks.
	logs string
	// claimed are the objects that an uninstallation has to delete, deleted are those that Helm has been told to delete.
	claimed, deleted kube.ResourceList
	// undeleted says why objects were not deleted.
	undeleted error
	// changes says what an upgrade changes in objects.
	changes string
	// differ are the names of objects that differ between the deployed revision and the chart.
	differ []string
}

// left returns how long an action that begins now may take. The rest of the time is for reporting how it ended, and
// for a rollback.
func (h *handler) left() time.Duration {
	if h.deadline.IsZero() {
		return h.timeout
	}
	left := time.Until(h.deadline)
	return max(left-left/5, time.Second)
}

// bounded limits all waits of an action together. Helm's timeout is for each hook, so an action that fails slowly would be
// stopped with the run, and what it has made would stay. Deleting hooks may take longer: a hook that stays would be in the
// way of the next try.
func (h *handler) bounded(ctx context.Context) (options []kube.WaitOption, stop context.CancelFunc) {
	ctx, stop = context.WithTimeout(ctx, h.left())
	return []kube.WaitOption{kube.WithWatchUntilReadyMethodContext(ctx), kube.WithWaitMethodContext(ctx)}, stop
}

// name is the name of the release.
func (h *handler) name() string { return h.in.Object.GetName() }

func (h *handler) act(ctx context.Context) (result, error) {
	unnamed := !nameable(h.name())
	if h.in.Run.Action == "finalize" && (unnamed || h.in.Object.GetNamespace() == "") {
		return result{}, nil // it cannot have a release
	}
	if h.in.Object.GetNamespace() == "" {
		return result{}, refusef("%s is cluster-scoped, and a release has to be in a namespace: make its kind namespaced (scope: Namespaced)", h.in.Object.GetKind())
	}
	if unnamed {
		return result{}, h.fail(releaseFailed, "InstallError",
			refusef("the name %q is not a valid release name: Helm allows 53 characters, lower-case letters, digits, - and .; make an object with another name", h.name()))
	}
	if err := h.connect(); err != nil {
		return result{}, err
	}
	if h.in.Run.Action == "finalize" {
		return h.uninstall(ctx)
	}
	return h.reconcile(ctx)
}

// nameable tells whether a release can have this name.
func nameable(name string) bool { return chartutil.ValidateReleaseName(name) == nil }

func (h *handler) check() bool { return h.in.Run.Action == "check" }

// reconcile makes the release match the object.
func (h *handler) reconcile(ctx context.Context) (result, error) {
	h.conditions(condition{kind: initialized, status: "True", reason: initialized})
	history, err := h.history()
	if err != nil {
		return result{}, h.fail(irreconcilable, "ReconcileError", err)
	}
	is, err := h.deployed(history)
	if err != nil {
		return result{}, h.fail(irreconcilable, "ReconcileError", err)
	}
	failure, reason := releaseFailed, "InstallError"
	if is != nil {
		failure, reason = irreconcilable, "ReconcileError"
	}
	if err := h.prepare(history); err != nil {
		return result{}, h.fail(failure, reason, err)
	}
	if err := h.crds(ctx, is == nil); err != nil {
		return result{}, h.fail(failure, reason, err)
	}
	wanted, err := h.wanted(ctx, is)
	if err != nil {
		return result{}, h.fail(failure, reason, err)
	}
	if is, err = h.repair(ctx, is, wanted.manifest); err != nil {
		return result{}, h.fail(irreconcilable, "ReconcileError", err)
	}
	if is == nil {
		return h.install(ctx, wanted.manifest)
	}
	upgrade, err := h.due(is, wanted.manifest)
	if err == nil && upgrade && !h.trusted {
		// Objects that are left alone are not upgraded.
		if err = h.distrust(is, wanted.hooks); err == nil {
			err = h.compare(is, wanted.manifest)
		}
	}
	switch {
	case err != nil:
		return result{}, h.fail(irreconcilable, "ReconcileError", err)
	case upgrade:
		return h.upgrade(ctx, is)
	}
	return h.keep(ctx, is, wanted)
}

// prepare loads the chart and the values, and checks what needs no rendering.
func (h *handler) prepare(history []*release.Release) (err error) {
	if h.chart, err = h.load(); err != nil {
		return err
	}
	h.chartName = h.chart.Name()
	if len(history) > 0 {
		if other := history[len(history)-1].Chart; other != nil && other.Name() != h.chartName {
			// No refusal: nothing tells when the other release is gone.
			return fmt.Errorf("duplicate release name: found existing release with name %q for chart %q; uninstall it (helm uninstall), or make an object with another name",
				h.name(), other.Name())
		}
	}
	if h.values, err = h.in.values(); err != nil {
		return err
	}
	// As in Helm's own commands: this decides which subcharts are enabled.
	if err := chartutil.ProcessDependencies(h.chart, h.values); err != nil {
		return refusef("the dependencies of the chart: %w", err)
	}
	return nil
}

// repair removes the records of actions that a crash has interrupted, and of releases that were never deployed: Helm would
// refuse to work with them. What such an action has made is taken over by the next one, or removed. Another object's release
// stays. It returns the revision that is deployed afterwards.
func (h *handler) repair(ctx context.Context, is *release.Release, wanted string) (*release.Release, error) {
	if h.check() {
		return is, nil
	}
	history, err := h.history()
	if err != nil {
		return nil, err
	}
	of := history
	if is != nil {
		of = []*release.Release{is}
	}
	if err := h.own(history, of...); err != nil {
		return nil, err
	}
	if is == nil {
		if err := h.clear(wanted); err != nil {
			return nil, err
		}
		return nil, h.forget(func(common.Status) bool { return true })
	}
	if err := h.forget(func(status common.Status) bool { return status == common.StatusPendingRollback }); err != nil {
		return nil, err
	}
	if is, err = h.revert(ctx, is, wanted); err != nil {
		return nil, err
	}
	return is, h.forget(common.Status.IsPending)
}

// forget removes the records of revisions with a status for which which returns true.
func (h *handler) forget(which func(common.Status) bool) error {
	history, err := h.history()
	if err != nil {
		return err
	}
	for _, rel := range history {
		if which(rel.Info.Status) {
			h.reports.progress("Remove the record of revision %d, which is %s", rel.Version, rel.Info.Status)
			if err := h.drop(rel); err != nil {
				return err
			}
		}
	}
	return nil
}

func (h *handler) drop(rel *release.Release) error {
	if _, err := h.config.Releases.Delete(rel.Name, rel.Version); err != nil && !errors.Is(err, driver.ErrReleaseNotFound) {
		return fmt.Errorf("remove the record of revision %d, which is %s: %w", rel.Version, rel.Info.Status, cause(err))
	}
	return nil
}

func (h *handler) waitStrategy() kube.WaitStrategy {
	if h.in.settings.Wait {
		return kube.StatusWatcherStrategy
	}
	return kube.HookOnlyStrategy
}

// load reads the chart. Each action needs a chart of its own, because Helm's actions modify it.
func (h *handler) load() (*v2.Chart, error) {
	chart, err := loader.LoadDir(h.in.settings.Chart)
	if err != nil {
		return nil, refusef("the chart %s cannot be loaded: %w", filepath.Base(h.in.settings.Chart), err)
	}
	dependencies := make([]helmchart.Dependency, 0, len(chart.Metadata.Dependencies))
	for _, d := range chart.Metadata.Dependencies {
		dependencies = append(dependencies, d)
	}
	if err := action.CheckDependencies(chart, dependencies); err != nil {
		return nil, refusef("%w; run helm dependency build, and copy charts/ with the chart", err)
	}
	return chart, nil
}
