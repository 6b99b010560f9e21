package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/kube"
	"helm.sh/helm/v4/pkg/release/common"
	release "helm.sh/helm/v4/pkg/release/v1"
	"helm.sh/helm/v4/pkg/storage/driver"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// uninstall removes the release before its object goes. It needs neither the chart nor the
// spec: the storage has everything. Only for a release that is not trusted, the hooks come from the chart.
func (h *handler) uninstall(ctx context.Context) (result, error) {
	history, err := h.history()
	if err != nil {
		return result{}, h.fail(releaseFailed, "UninstallError", err)
	}
	last, err := h.removable(ctx, history)
	if errors.As(err, new(foreign)) {
		note("%v", err)
		h.reports.event("Warning", "UnverifiedRelease", "Nothing is uninstalled: "+err.Error())
		return result{}, nil
	}
	if err != nil {
		return result{}, h.fail(releaseFailed, "UninstallError", err)
	}
	if last == nil {
		return result{}, nil
	}
	h.reports.progress("Uninstall the release %s", h.name())
	wait, _ := h.in.annotated("uninstall-wait", false)
	if last.Info.Status != common.StatusUninstalled {
		if last.Info.Status == common.StatusUninstalling {
			h.records.leaveOut(last, deletedBefore)
		}
		if err = h.remove(ctx, true); err == nil {
			err = h.complete()
		}
		if err != nil && last.Info.Status == common.StatusUninstalled {
			last.Info.Status = common.StatusUninstalling // a post-delete hook has failed, or an object is left: the next run tries again
			err = errors.Join(err, h.config.Releases.Update(last))
		}
	}
	if err == nil && wait {
		var left []string
		if left, err = h.leaving(last); err == nil && len(left) > 0 {
			h.conditions(condition{kind: deployed, status: "False", reason: "UninstallSuccessful", message: "Waiting until all resources are deleted."})
			soon := min(max(time.Since(last.Info.Deleted)/4, 5*time.Second), time.Minute)
			return result{changed: true, waiting: "Waiting until all resources are deleted: " + named(left), requeue: soon}, nil
		}
	}
	if err == nil {
		err = h.remove(ctx, false) // only the records are left
	}
	if err != nil {
		return result{}, err
	}
	h.conditions(absent(releaseFailed), condition{kind: deployed, status: "False", reason: "UninstallSuccessful"})
	h.reports.event("Normal", "ReleaseUninstalled", fmt.Sprintf("The release %s was uninstalled", h.name()))
	return result{changed: true}, nil
}

// deletedBefore tells whether a hook has succeeded in an earlier run of the uninstallation. It must not run again: what it
// needs, or saves, may be deleted by now.
func deletedBefore(hook *release.Hook) bool {
	return slices.Equal(hook.Events, []release.HookEvent{release.HookPreDelete}) && hook.LastRun.Phase == release.HookPhaseSucceeded
}

// removable returns the last revision, which Helm uninstalls. It includes everything that revisions since the deployed one
// may have made, and its objects have Helm's marks. It is nil if there is none.
func (h *handler) removable(ctx context.Context, history []*release.Release) (last *release.Release, err error) {
	if len(history) > 0 {
		last = history[len(history)-1]
		if last.Chart != nil {
			h.chartName = last.Chart.Name()
		}
		ran := last.Hooks
		var is *release.Release
		switch is, err = h.basis(history); {
		case err != nil:
		case h.trusted:
			_, err = h.served(is) // even if the watch has a chart with another name by now
		case h.chartName != "" && !h.ofChart():
			return nil, nil
		default:
			if err = h.own(history); err == nil {
				err = h.distrust(is, h.freshHooks(ctx, last))
			}
		}
		if err == nil {
			err = h.withNewer(is, history)
			last.Manifest, last.Hooks = is.Manifest, is.Hooks
			keepRuns(last.Hooks, ran)
		}
	} else if last, err = h.recorded(); err == nil && last != nil {
		err = h.distrust(last, nil)
	}
	if err != nil {
		return nil, err
	}
	if last == nil || len(history) == 0 && last.Manifest == "" {
		note("Release not found")
		return nil, nil
	}
	if last.Info.Status == common.StatusUninstalled {
		return last, nil // an object with such a name has been made by others since
	}
	return last, h.claim(last)
}

// basis returns a copy of the deployed revision, whose record stays as it is sealed, and finds out whether it is trusted. If
// Helm has deleted the objects with the record of a later revision, the deployed one is superseded by now.
func (h *handler) basis(history []*release.Release) (*release.Release, error) {
	last := history[len(history)-1]
	is := *cmp.Or(deployedOf(history), last)
	var err error
	h.trusted, err = h.sealed(&is)
	deleted := last.Info.Status == common.StatusUninstalling || last.Info.Status == common.StatusUninstalled
	if before := deployedOf(history[:len(history)-1]); err == nil && !h.trusted && is.Version == last.Version && deleted && before != nil {
		if h.trusted, err = h.sealed(before); h.trusted {
			is = *before
		}
	}
	return &is, err
}

// keepRuns notes in hooks how they have ended in earlier runs of the uninstallation.
func keepRuns(hooks, ran []*release.Hook) {
	for _, hook := range hooks {
		for _, was := range ran {
			if was != nil && was.Kind == hook.Kind && was.Name == hook.Name && was.Manifest == hook.Manifest {
				hook.LastRun = was.LastRun
			}
		}
	}
}

// withNewer adds to the deployed revision the objects of later revisions that carry the marks of the release: a failed or
// interrupted upgrade or rollback may have made them, and not removed the ones it leaves out. Objects that a later revision
// keeps are not deleted.
func (h *handler) withNewer(is *release.Release, history []*release.Release) error {
	for _, rel := range slices.Backward(history) {
		if rel.Version <= is.Version {
			break
		}
		if err := h.distrust(rel, nil); err != nil {
			return err
		}
		is.Manifest = both(lacking(is.Manifest, keptIn(rel.Manifest)), rel.Manifest)
	}
	return nil
}

// ofChart tells whether the release was made from the watch's chart; true if that chart cannot be loaded.
func (h *handler) ofChart() bool {
	chart, err := h.load()
	if err != nil || chart.Name() == h.chartName {
		return true
	}
	note("the release %s of the chart %s is kept: it does not belong to this object", h.name(), h.chartName)
	return false
}

// freshHooks returns the hooks that the chart has now, if it renders.
func (h *handler) freshHooks(ctx context.Context, is *release.Release) []*release.Hook {
	err := h.prepare(nil)
	var wanted rendered
	if err == nil {
		wanted, err = h.render(ctx, is)
	}
	if err != nil {
		note("no hooks are run, since revision %d is not known to be made by this operator, and the chart does not render now: %v", is.Version, err)
	}
	return wanted.hooks
}

// remove makes Helm uninstall the release. With keep, the records stay, so that a later run can see what is left: Helm removes
// them even if a post-delete hook has failed.
func (h *handler) remove(ctx context.Context, keep bool) error {
	uninstall, stop := h.uninstaller(ctx)
	defer stop()
	uninstall.KeepHistory = keep
	_, err := uninstall.Run(h.name())
	switch {
	case err == nil || errors.Is(err, driver.ErrReleaseNotFound):
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("the uninstallation was stopped: %w", err)
	}
	if h.undeleted != nil {
		err = fmt.Errorf("%w: %w", err, h.undeleted)
	}
	return h.fail(releaseFailed, "UninstallError", cause(err))
}

// complete returns an error for objects that Helm has silently not deleted, because it could not read them.
func (h *handler) complete() error {
	var left []string
	var why error
	for _, info := range h.claimed.Difference(h.deleted) {
		if err := info.Get(); !apierrors.IsNotFound(err) { // a pre-delete hook may have deleted it
			left = append(left, describe(info))
			if why == nil && err != nil {
				why = cause(err)
			}
		}
	}
	if len(left) == 0 {
		return nil
	}
	err := fmt.Errorf("objects of the release could not be read, and are not deleted yet: %s", named(left))
	if why != nil {
		err = fmt.Errorf("%w: %w", err, why)
	}
	return h.fail(releaseFailed, "UninstallError", err)
}

// leaving returns the objects of a release that have been deleted but still exist.
func (h *handler) leaving(is *release.Release) ([]string, error) {
	list, err := h.kube.Build(strings.NewReader(is.Manifest), false)
	if err != nil {
		return nil, h.fail(releaseFailed, "UninstallError", cause(err))
	}
	var left []string
	for _, info := range list {
		err := info.Get()
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, h.fail(releaseFailed, "UninstallError", fmt.Errorf("%s: %w", describe(info), cause(err)))
		}
		if obj, ok := info.Object.(metav1.Object); err == nil && ok && obj.GetDeletionTimestamp() != nil {
			left = append(left, describe(info))
		}
	}
	return left, nil
}

// uninstaller does not wait for deletions: if they took longer than a run, Helm would forget the release.
func (h *handler) uninstaller(ctx context.Context) (uninstall *action.Uninstall, stop context.CancelFunc) {
	uninstall = action.NewUninstall(h.config)
	uninstall.DeletionPropagation, uninstall.Timeout, uninstall.WaitStrategy = "background", h.timeout, kube.HookOnlyStrategy
	uninstall.WaitOptions, stop = h.bounded(ctx)
	return uninstall, stop
}
