package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/kube"
	release "helm.sh/helm/v4/pkg/release/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/resource"
)

// rollback makes the revision again that an upgrade should have replaced. Without an
// annotation it is tried without force first: with force, fields that cannot change fail. It is not waited for: the
// run fails in any case, and a second try because of Pods that are slow would replace each object.
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
		if err = h.restore(ctx, to, force); err == nil {
			return h.fail(releaseFailed, "UpgradeError", fmt.Errorf("upgrade failed, and revision %d was restored: %w", to.Version, why))
		}
	}
	return h.fail(releaseFailed, "UpgradeError", fmt.Errorf("upgrade failed: %w; revision %d cannot be restored: %w", why, to.Version, cause(err)))
}

// revert makes the deployed revision again where the upgrade after it has not succeeded, and was of another chart or other values
// than those of now: objects and fields that only that one has would be left. It returns the revision that is deployed then.
func (h *handler) revert(ctx context.Context, is *release.Release) (*release.Release, error) {
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
	err = h.restore(ctx, is, false)
	if h.trusted = true; err != nil {
		return nil, fmt.Errorf("the upgrade to revision %d has not succeeded, and revision %d cannot be restored: %w", last.Version, is.Version, cause(err))
	}
	return h.last()
}

// restore makes a revision again, as another one. Where that fails, the records are as before: the next try has to compare with what
// was to be upgraded to.
func (h *handler) restore(ctx context.Context, to *release.Release, force bool) error {
	before, err := h.last()
	if err != nil {
		return err
	}
	status := before.Info.Status
	rollback := action.NewRollback(h.config)
	rollback.Version, rollback.Timeout, rollback.MaxHistory = to.Version, h.timeout/4, h.in.settings.MaxHistory
	rollback.ServerSideApply, rollback.ForceReplace, rollback.WaitStrategy = "false", force, kube.HookOnlyStrategy
	options, stop := h.bounded(ctx)
	defer stop()
	rollback.WaitOptions = options
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

// clear deletes what installations that were cut short have made, and is not wanted now. With takeOwnership the marks of the release do
// not tell that they have made it.
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

// keptLive tells whether an object in the cluster is to be kept; one that cannot be read is left.
func (h *handler) keptLive(info *resource.Info) bool {
	live, err := resource.NewHelper(info.Client, info.Mapping).Get(info.Namespace, info.Name)
	if err != nil {
		return !apierrors.IsNotFound(err)
	}
	is, err := meta.Accessor(live)
	return err != nil || kept(is)
}
