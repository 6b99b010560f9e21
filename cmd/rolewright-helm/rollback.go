package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/kube"
	release "helm.sh/helm/v4/pkg/release/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/resource"
)

// rollback restores the revision that an upgrade was to replace. Unless an annotation decides,
// the first try is without force: with force, fields that cannot change fail. It does not wait for readiness: the run
// fails in any case, and a second try because of slow Pods would replace each object.
func (h *handler) rollback(ctx context.Context, to *release.Release, why error) error {
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
		if err = h.restore(ctx, to, force, true); err == nil {
			break
		}
	}
	if err != nil {
		return h.fail(releaseFailed, "UpgradeError", fmt.Errorf("upgrade failed: %w; revision %d cannot be restored: %w", why, to.Version, cause(err)))
	}
	return h.fail(releaseFailed, "UpgradeError", fmt.Errorf("upgrade failed, and revision %d was restored: %w", to.Version, why))
}

// revert restores the deployed revision if it is still wanted and later upgrades have not succeeded: otherwise objects and
// fields that only they have would stay. It replaces no object, and runs no hooks, because nothing has failed now. It
// returns the revision that is deployed afterwards. If another revision is wanted, the next upgrade takes over what those
// upgrades made: it may need it.
func (h *handler) revert(ctx context.Context, is *release.Release, wanted string) (*release.Release, error) {
	unwanted, err := h.unwanted(is)
	if err != nil || len(unwanted) == 0 {
		return is, err
	}
	if another, err := h.due(is, wanted); another || err != nil {
		return is, err
	}
	last, err := h.last()
	if err != nil {
		return nil, err
	}
	version := unwanted[0].Version
	h.reports.progress("Roll back to revision %d: the upgrade to revision %d has not succeeded, and is not wanted any more", is.Version, version)
	manifest := ""
	for _, rel := range unwanted {
		if err := h.distrust(rel, nil); err != nil {
			return nil, err
		}
		manifest = both(manifest, rel.Manifest)
	}
	last.Manifest = manifest // what Helm compares with
	h.trusted = false        // it is not sealed
	err = h.restore(ctx, is, false, false)
	if h.trusted = true; err != nil {
		return nil, fmt.Errorf("the upgrade to revision %d has not succeeded, and revision %d cannot be restored: %w", version, is.Version, cause(err))
	}
	return h.last()
}

// unwanted returns the revisions after the deployed one, the newest first, without rollbacks to it; none if that one is not
// trusted.
func (h *handler) unwanted(is *release.Release) (list []*release.Release, err error) {
	history, err := h.history()
	if err != nil || !h.trusted {
		return nil, err
	}
	for _, rel := range slices.Backward(history) {
		if rel.Version > is.Version && h.sealOf(rel) != h.sealOf(is) {
			list = append(list, rel)
		}
	}
	return list, nil
}

// restore makes an earlier revision again, as a new one. If that fails, it puts the records back as they were: the next try
// has to compare with the revision that was the target of the upgrade.
func (h *handler) restore(ctx context.Context, to *release.Release, force, hooks bool) error {
	before, err := h.last()
	if err != nil {
		return err
	}
	status := before.Info.Status
	rollback := action.NewRollback(h.config)
	rollback.Version, rollback.Timeout, rollback.MaxHistory = to.Version, h.timeout/4, 0 // the next upgrade removes old records
	rollback.ServerSideApply, rollback.ForceReplace, rollback.WaitStrategy, rollback.DisableHooks = "false", force, kube.HookOnlyStrategy, !hooks
	options, stop := h.bounded(ctx)
	defer stop()
	rollback.WaitOptions = options
	h.restoring = true
	defer func() { h.restoring = false }()
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

// labelFound is on revisions whose installation found objects and took them over: their marks do not prove that it made
// them.
const labelFound = "rolewright.dev/found"

// clear deletes what interrupted installations have made and is not wanted now.
func (h *handler) clear(wanted string) error {
	history, err := h.history()
	if err != nil || len(history) == 0 || h.in.settings.TakeOwnership {
		return err
	}
	now, err := h.kube.Build(strings.NewReader(wanted), false)
	if err != nil {
		return cause(err)
	}
	for _, rel := range history {
		if rel.Labels[labelFound] != "" {
			continue
		}
		if err := h.distrust(rel, nil); err != nil {
			return err
		}
		made, err := h.kube.Build(strings.NewReader(rel.Manifest), false)
		if err != nil {
			return cause(err)
		}
		unwanted := made.Difference(now).Filter(func(info *resource.Info) bool {
			is, err := meta.Accessor(info.Object)
			return err == nil && !kept(is) && !h.keptLive(info)
		})
		if len(unwanted) == 0 {
			continue
		}
		h.reports.progress("Delete what revision %d, which is %s, has made, and is not wanted any more", rel.Version, rel.Info.Status)
		if _, errs := h.kube.Delete(unwanted, metav1.DeletePropagationBackground); len(errs) > 0 {
			return errors.Join(errs...)
		}
	}
	return nil
}

// keptLive tells whether an object in the cluster is to be kept; an object that cannot be read is.
func (h *handler) keptLive(info *resource.Info) bool {
	live, err := resource.NewHelper(info.Client, info.Mapping).Get(info.Namespace, info.Name)
	if err != nil {
		return !apierrors.IsNotFound(err)
	}
	is, err := meta.Accessor(live)
	return err != nil || kept(is)
}
