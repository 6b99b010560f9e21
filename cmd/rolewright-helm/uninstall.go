package main

import (
	"context"
	"errors"
	"fmt"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/kube"
	release "helm.sh/helm/v4/pkg/release/v1"
	"helm.sh/helm/v4/pkg/storage/driver"
)

// uninstall removes the release before its object goes. It needs neither the chart nor the
// spec: the storage has all. Only the hooks of a release that is not trusted are those of the chart.
func (h *handler) uninstall(ctx context.Context) (result, error) {
	history, err := h.history()
	if err != nil {
		return result{}, h.fail(releaseFailed, "UninstallError", err)
	}
	var last *release.Release
	if len(history) > 0 {
		last = history[len(history)-1]
		if last.Chart != nil && !h.isOf(last.Chart) {
			return result{}, nil
		}
		if h.trusted, err = h.sealed(last); err == nil && !h.trusted {
			err = h.distrust(last, h.freshHooks(ctx, last))
		}
	} else if last, err = h.recorded(); err == nil && last != nil {
		err = h.distrust(last, nil)
	}
	if err != nil {
		return result{}, h.fail(releaseFailed, "UninstallError", err)
	}
	if last == nil || len(history) == 0 && last.Manifest == "" {
		note("Release not found")
		return result{}, nil
	}
	h.reports.progress("Uninstall the release %s", h.name())
	if wait, _ := h.in.annotated("uninstall-wait", false); wait {
		h.conditions(condition{kind: deployed, status: "False", reason: "UninstallSuccessful", message: "Waiting until all resources are deleted."})
	}
	_, err = h.uninstaller().Run(h.name())
	if err != nil && !errors.Is(err, driver.ErrReleaseNotFound) {
		if ctx.Err() != nil {
			return result{}, fmt.Errorf("the uninstallation was stopped: %w", err)
		}
		return result{}, h.fail(releaseFailed, "UninstallError", cause(err))
	}
	h.conditions(absent(releaseFailed), condition{kind: deployed, status: "False", reason: "UninstallSuccessful"})
	h.reports.event("Normal", "ReleaseUninstalled", fmt.Sprintf("The release %s was uninstalled", h.name()))
	return result{changed: true}, nil
}

// isOf tells whether a release is of the chart of the watch, if that can be loaded.
func (h *handler) isOf(has *v2.Chart) bool {
	h.chartName = has.Name()
	if h.in.settings.Chart == "" {
		return true
	}
	chart, err := h.load()
	if err != nil || chart.Name() == h.chartName {
		return true
	}
	note("the release %s is of the chart %s and stays: it is not this object's", h.name(), h.chartName)
	return false
}

// freshHooks are the hooks that the chart has now, if it renders.
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

// uninstaller waits, where the object asks for it, until the objects of the release are gone.
func (h *handler) uninstaller() *action.Uninstall {
	uninstall := action.NewUninstall(h.config)
	uninstall.DeletionPropagation, uninstall.Timeout, uninstall.WaitStrategy = "background", h.timeout, kube.HookOnlyStrategy
	if wait, _ := h.in.annotated("uninstall-wait", false); wait {
		uninstall.WaitStrategy = kube.StatusWatcherStrategy
	}
	return uninstall
}
