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
	"helm.sh/helm/v4/pkg/kube"
	release "helm.sh/helm/v4/pkg/release/v1"
	"helm.sh/helm/v4/pkg/storage/driver"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	installSuccessful = "InstallSuccessful"
	upgradeSuccessful = "UpgradeSuccessful"
)

// install makes the first revision. What it leaves when it fails is removed, unless something
// of it was there before.
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
	install.WaitStrategy, install.Labels = h.waitStrategy(), map[string]string{labelInputs: inputs, labelSalt: rand.Text()}
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
		h.reports.progress("Remove what the failed installation has left")
		if _, undo := h.uninstaller().Run(h.name()); undo != nil && !errors.Is(undo, driver.ErrReleaseNotFound) {
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

// existing tells whether an object of the manifest is there already. One that is being deleted is not: it may be what an
// installation that failed has left.
func (h *handler) existing(manifest string) (bool, error) {
	list, err := h.kube.Build(strings.NewReader(manifest), false)
	if err != nil {
		return false, fmt.Errorf("failed to install release: %w", cause(err))
	}
	for _, info := range list {
		if info.Get() != nil {
			continue
		}
		if obj, ok := info.Object.(metav1.Object); !ok || obj.GetDeletionTimestamp() == nil {
			return true, nil
		}
	}
	return false, nil
}

// upgrade makes another revision. If it fails, the one before is made again.
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
	upgrade.WaitStrategy, upgrade.Labels, upgrade.SkipCRDs = h.waitStrategy(), map[string]string{labelInputs: inputs, labelSalt: rand.Text()}, true
	upgrade.ForceReplace, _ = h.in.annotated("upgrade-force", false)
	made, err := upgrade.RunWithContext(ctx, h.name(), chart, h.values)
	if err != nil {
		err = cause(err)
		if ctx.Err() != nil {
			return result{}, fmt.Errorf("the upgrade was stopped: %w", err)
		}
		if rel, _ := made.(*release.Release); rel == nil {
			return result{}, h.fail(releaseFailed, "UpgradeError", fmt.Errorf("failed to upgrade release: %w", err))
		}
		return result{}, h.rollback(is, err)
	}
	rel, err := h.last()
	if err != nil {
		return result{}, err
	}
	h.reports.event("Normal", "ReleaseUpgraded", fmt.Sprintf("The release %s was upgraded to revision %d: %s", h.name(), rel.Version, changed))
	return h.succeed(ctx, rel, upgradeSuccessful, true)
}

// rollback makes the revision again that an upgrade should have replaced. Without an
// annotation it is tried without force first: with force, fields that cannot change fail. It is not waited for: the
// run fails in any case, and a second try because of Pods that are slow would replace each object.
func (h *handler) rollback(to *release.Release, why error) error {
	if !h.trusted {
		return h.fail(releaseFailed, "UpgradeError",
			fmt.Errorf("upgrade failed: %w; revision %d is not restored, since it is not known to be made by this operator", why, to.Version))
	}
	h.reports.progress("Roll back to revision %d", to.Version)
	force, said := h.in.annotated("rollback-force", true)
	attempts := []bool{false, true}
	if said {
		attempts = []bool{force}
	}
	var err error
	for _, force := range attempts {
		if err = h.restore(to, force); err == nil {
			return h.fail(releaseFailed, "UpgradeError", fmt.Errorf("upgrade failed, and revision %d was restored: %w", to.Version, why))
		}
	}
	return h.fail(releaseFailed, "UpgradeError", fmt.Errorf("upgrade failed: %w; revision %d cannot be restored: %w", why, to.Version, cause(err)))
}

// revert makes the deployed revision again where the upgrade after it has not succeeded, and was of another chart or other values
// than those of now: objects and fields that only that one has would be left. It returns the revision that is deployed then.
func (h *handler) revert(is *release.Release) (*release.Release, error) {
	last, err := h.last()
	if err != nil || !h.trusted || last.Version <= is.Version {
		return is, err
	}
	inputs, err := h.inputs()
	if err != nil || last.Labels[labelInputs] == inputs {
		return is, err
	}
	h.reports.progress("Roll back to revision %d: the upgrade to revision %d has not succeeded, and is not wanted any more", is.Version, last.Version)
	if err := h.distrust(last, nil); err != nil {
		return nil, err
	}
	h.trusted = false // what is compared with is not sealed
	err = h.restore(is, false)
	if h.trusted = true; err != nil {
		return nil, fmt.Errorf("the upgrade to revision %d has not succeeded, and revision %d cannot be restored: %w", last.Version, is.Version, cause(err))
	}
	return h.last()
}

// restore makes a revision again, as another one. Where that fails, the records are as before: the next try has to compare with what
// was to be upgraded to.
func (h *handler) restore(to *release.Release, force bool) error {
	before, err := h.last()
	if err != nil {
		return err
	}
	status := before.Info.Status
	rollback := action.NewRollback(h.config)
	rollback.Version, rollback.Timeout, rollback.MaxHistory = to.Version, h.timeout/4, h.in.settings.MaxHistory
	rollback.ServerSideApply, rollback.ForceReplace, rollback.WaitStrategy = "false", force, kube.HookOnlyStrategy
	if err = rollback.Run(h.name()); err == nil {
		h.reports.event("Normal", "ReleaseRolledBack", fmt.Sprintf("The release %s was rolled back to revision %d", h.name(), to.Version))
		return nil
	}
	if last, lastErr := h.last(); lastErr == nil && last.Version > before.Version {
		before.Info.Status = status
		err = errors.Join(err, h.drop(last), h.config.Releases.Update(before))
	}
	return err
}

// overridden reports, as helm-operator does, which values the watch decides.
func (h *handler) overridden() {
	if h.in.Run.Attempt > 1 {
		return // it was said
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

// last is the last revision as the storage has it.
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
