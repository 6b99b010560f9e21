package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/release/common"
	release "helm.sh/helm/v4/pkg/release/v1"
	"helm.sh/helm/v4/pkg/storage/driver"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	installSuccessful = "InstallSuccessful"
	upgradeSuccessful = "UpgradeSuccessful"
)

// install makes the first revision. If it fails, what it has made is removed, unless some of
// the objects existed before.
func (h *handler) install(ctx context.Context, wanted string) (result, error) {
	found, err := h.existing(wanted)
	if err != nil {
		return result{}, h.fail(releaseFailed, "InstallError", err)
	}
	if h.check() {
		made, err := parse(wanted)
		if err != nil {
			return result{}, h.fail(releaseFailed, "InstallError", fmt.Errorf("the chart does not render objects: %w", err))
		}
		h.reports.change(changesOf(slices.Sorted(maps.Keys(made)), nil, made), "The chart would be installed")
		return result{changed: true}, nil
	}
	h.overridden()
	inputs, err := h.inputs()
	if err != nil {
		return result{}, err
	}
	chart, err := h.load()
	if err != nil {
		return result{}, h.fail(releaseFailed, "InstallError", err)
	}
	h.reports.progress("Install the release %s", h.name())
	install := action.NewInstall(h.config)
	install.ReleaseName, install.Namespace, install.Timeout = h.name(), h.in.Object.GetNamespace(), h.timeout
	install.ServerSideApply, install.SkipCRDs, install.TakeOwnership = false, true, h.in.settings.TakeOwnership
	install.WaitStrategy, install.Labels = h.waitStrategy(), map[string]string{labelInputs: inputs, labelSalt: rand.Text(), labelKind: h.kind()}
	if found || h.in.settings.TakeOwnership {
		install.Labels[labelFound] = "true"
	}
	options, stop := h.bounded(ctx)
	defer stop()
	install.WaitOptions = options
	made, err := install.RunWithContext(ctx, chart, h.values)
	if err != nil {
		err = cause(err)
		if ctx.Err() != nil {
			return result{}, fmt.Errorf("the installation was stopped: %w", err)
		}
		rel, _ := made.(*release.Release)
		if rel == nil || found {
			return result{}, h.fail(releaseFailed, "InstallError", fmt.Errorf("failed to install release: %w", err))
		}
		if undo := h.undo(ctx); undo != nil {
			return result{}, h.fail(releaseFailed, "InstallError", fmt.Errorf("failed installation (%w) and failed rollback: %w", err, undo))
		}
		return result{}, h.fail(releaseFailed, "InstallError", fmt.Errorf("failed to install release: %w", err))
	}
	rel, err := h.last()
	if err != nil {
		return result{}, err
	}
	h.reports.event("Normal", "ReleaseInstalled", fmt.Sprintf("The chart %s %s was installed as release %s", h.chartName, h.chart.Metadata.Version, h.name()))
	return h.succeed(ctx, rel, installSuccessful, true)
}

// undo removes what a failed installation has left behind.
func (h *handler) undo(ctx context.Context) error {
	h.reports.progress("Remove what the failed installation has left")
	uninstall, stop := h.uninstaller(ctx)
	defer stop()
	_, err := uninstall.Run(h.name())
	if errors.Is(err, driver.ErrReleaseNotFound) {
		return nil
	}
	return err
}

// existing tells whether an object of the manifest exists already. An object that is being deleted does not count: a failed
// installation may have left it behind.
func (h *handler) existing(manifest string) (bool, error) {
	list, err := h.kube.Build(strings.NewReader(manifest), false)
	if err != nil {
		return false, fmt.Errorf("failed to install release: %w", cause(err))
	}
	for _, info := range list {
		err := info.Get()
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return false, fmt.Errorf("failed to install release: %s: %w", describe(info), cause(err))
		}
		if obj, ok := info.Object.(metav1.Object); !ok || obj.GetDeletionTimestamp() == nil {
			return true, nil
		}
	}
	return false, nil
}

// upgrade makes another revision. If it fails, the previous one is restored.
func (h *handler) upgrade(ctx context.Context, is *release.Release) (result, error) {
	changed := "nothing but its record"
	if len(h.differ) > 0 {
		changed = named(h.differ)
		note("changed: %s", strings.Join(h.differ, ", "))
	}
	if h.check() {
		h.reports.change(h.changes, "The release would be upgraded: %s", changed)
		return result{changed: true}, nil
	}
	h.overridden()
	inputs, err := h.inputs()
	if err != nil {
		return result{}, err
	}
	chart, err := h.load()
	if err != nil {
		return result{}, h.fail(releaseFailed, "UpgradeError", err)
	}
	h.reports.change(h.changes, "Upgrade the release %s: %s", h.name(), changed)
	upgrade := action.NewUpgrade(h.config)
	upgrade.Namespace, upgrade.Timeout, upgrade.MaxHistory = h.in.Object.GetNamespace(), h.timeout, h.in.settings.MaxHistory
	upgrade.ServerSideApply, upgrade.ResetValues, upgrade.TakeOwnership = "false", true, h.in.settings.TakeOwnership
	upgrade.WaitStrategy, upgrade.Labels, upgrade.SkipCRDs = h.waitStrategy(), map[string]string{labelInputs: inputs, labelSalt: rand.Text(), labelKind: h.kind()}, true
	upgrade.ForceReplace, _ = h.in.annotated("upgrade-force", false)
	options, stop := h.bounded(ctx)
	defer stop()
	upgrade.WaitOptions = options
	is.Info.Status = common.StatusDeployed // else Helm would start from the last revision, which may be a forged one, and could remove this record
	made, err := upgrade.RunWithContext(ctx, h.name(), chart, h.values)
	if err != nil {
		err = cause(err)
		if ctx.Err() != nil {
			return result{}, fmt.Errorf("the upgrade was stopped: %w", err)
		}
		if rel, _ := made.(*release.Release); rel == nil {
			return result{}, h.fail(releaseFailed, "UpgradeError", fmt.Errorf("failed to upgrade release: %w", err))
		}
		return result{}, h.rollback(ctx, is, err)
	}
	rel, err := h.last()
	if err != nil {
		return result{}, err
	}
	h.reports.event("Normal", "ReleaseUpgraded", fmt.Sprintf("The release %s was upgraded to revision %d: %s", h.name(), rel.Version, changed))
	return h.succeed(ctx, rel, upgradeSuccessful, true)
}

// overridden reports which values the watch overrides, as helm-operator does.
func (h *handler) overridden() {
	if h.in.Run.Attempt > 1 {
		return // the first attempt has reported it
	}
	for _, key := range slices.Sorted(maps.Keys(h.in.settings.OverrideValues)) {
		value := h.in.settings.OverrideValues[key]
		if h.in.settings.SuppressOverrideValues {
			value = "****"
		}
		if h.reports.events < maxEvents-4 {
			h.reports.event("Warning", "OverrideValuesInUse", fmt.Sprintf("Chart value %q overridden to %q by operator's watches.yaml", key, value))
		}
	}
}

// last returns the last revision in the storage.
func (h *handler) last() (*release.Release, error) {
	history, err := h.history()
	if err == nil && len(history) == 0 {
		err = errors.New("the release is gone: something else has removed it")
	}
	if err != nil {
		return nil, err
	}
	return history[len(history)-1], nil
}
