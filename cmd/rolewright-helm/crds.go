package main

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"helm.sh/helm/v4/pkg/kube"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
)

// What happens to the definitions in crds/ of a chart.
const (
	crdsApply = "apply"
	crdsSkip  = "skip"
)

// crds creates the definitions in crds/ of the chart: before the first installation, those that
// are missing; with crds: apply, all of them in the chart's version, in each run.
func (h *handler) crds(ctx context.Context, first bool) error {
	apply := h.in.settings.CRDs == crdsApply
	if h.check() || h.in.settings.CRDs == crdsSkip || !first && !apply {
		return nil
	}
	var made kube.ResourceList
	for _, crd := range h.chart.CRDObjects() {
		list, err := unowned(h.kube.Client.Build(bytes.NewReader(crd.File.Data), false))
		if err != nil {
			return fmt.Errorf("%s of the chart: %w", crd.Filename, cause(err))
		}
		for _, info := range list { // one by one: of several that fail, Helm returns the first error
			one := kube.ResourceList{info}
			if apply {
				_, err = h.kube.Client.Update(one, one, kube.ClientUpdateOptionServerSideApply(true, true))
			} else {
				_, err = h.kube.Create(one, kube.ClientCreateOptionServerSideApply(false, false))
			}
			switch {
			case apierrors.IsAlreadyExists(err):
			case err != nil:
				return fmt.Errorf("%s of the chart: %w", crd.Filename, cause(err))
			default:
				made = append(made, info)
			}
		}
	}
	if len(made) == 0 {
		return nil
	}
	h.reports.progress("Wait for %d custom resource definitions", len(made))
	options, stop := h.bounded(ctx)
	defer stop()
	waiter, err := h.kube.GetWaiterWithOptions(kube.StatusWatcherStrategy, options...)
	if err != nil {
		return err
	}
	if err := waiter.Wait(made, min(h.timeout, time.Minute)); err != nil {
		return fmt.Errorf("the custom resource definitions of the chart: %w", err)
	}
	h.config.Capabilities = nil
	h.discovery.Invalidate()
	h.mapper.Reset()
	return nil
}

// unowned marks the definitions as belonging to no object: others use them, too, and no release may delete them.
func unowned(list kube.ResourceList, err error) (kube.ResourceList, error) {
	for _, info := range list {
		obj, err := meta.Accessor(info.Object)
		if err != nil {
			return nil, err
		}
		obj.SetAnnotations(with(obj.GetAnnotations(), map[string]string{annotationOwned: "none"}))
	}
	return list, err
}
