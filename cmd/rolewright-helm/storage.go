package main

import (
	"errors"
	"fmt"

	"helm.sh/helm/v4/pkg/release"
	"helm.sh/helm/v4/pkg/release/common"
	"helm.sh/helm/v4/pkg/release/v1"
	releaseutil "helm.sh/helm/v4/pkg/release/v1/util"
	"helm.sh/helm/v4/pkg/storage/driver"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// records is the storage of a run. Helm's actions read what the run has read at its start, and
// looked at, and what they have written themselves: who may write the Secrets cannot change
// that under them.
type records struct {
	*driver.Memory
	secrets *driver.Secrets
	read    bool
}

// Create implements [driver.Driver].
func (r *records) Create(key string, rel release.Releaser) error {
	if err := r.secrets.Create(key, rel); err != nil {
		return fitting(err)
	}
	return r.Memory.Create(key, rel)
}

// Update implements [driver.Driver].
func (r *records) Update(key string, rel release.Releaser) error {
	if err := r.secrets.Update(key, rel); err != nil {
		return fitting(err)
	}
	return r.Memory.Update(key, rel)
}

// fitting says what to do about a release that does not fit into its Secret: Helm divides none.
func fitting(err error) error {
	if !apierrors.IsRequestEntityTooLargeError(err) && !apierrors.HasStatusCause(err, metav1.CauseType(field.ErrorTypeTooLong)) {
		return err
	}
	return refusef("the record of the release does not fit into a Secret, which takes 1 MiB: it has, compressed, all files of the chart, the values and "+
		"the manifest; leave out of the chart what its templates do not use (.helmignore), or divide it into several charts: %w", err)
}

// Delete implements [driver.Driver].
func (r *records) Delete(key string) (release.Releaser, error) {
	if _, err := r.secrets.Delete(key); err != nil && !errors.Is(err, driver.ErrReleaseNotFound) {
		return nil, err
	}
	return r.Memory.Delete(key)
}

// load reads the revisions of the release. Its name and namespace are not what they say: an upgrade
// would render the chart for another namespace.
func (r *records) load(name, namespace string) error {
	r.SetNamespace(namespace)
	list, err := r.secrets.Query(map[string]string{"name": name, "owner": "helm"})
	if err != nil && !errors.Is(err, driver.ErrReleaseNotFound) {
		return err
	}
	for _, one := range list {
		rel, ok := one.(*v1.Release)
		if !ok {
			return fmt.Errorf("the release is of an unknown format: %T", one)
		}
		rel.Name, rel.Namespace = name, namespace
		if rel.Info == nil {
			rel.Info = &v1.Info{Status: common.StatusUnknown}
		}
		key := fmt.Sprintf("sh.helm.release.v1.%s.v%d", name, rel.Version)
		if err := r.Memory.Create(key, rel); err != nil && !errors.Is(err, driver.ErrReleaseExists) {
			return err
		}
	}
	r.read = true
	return nil
}

// history are the revisions of the release, the oldest first.
func (h *handler) history() ([]*v1.Release, error) {
	if !h.records.read {
		if err := h.records.load(h.name(), h.in.Object.GetNamespace()); err != nil {
			return nil, fmt.Errorf("read the release: %w", cause(err))
		}
	}
	list, err := h.config.Releases.History(h.name())
	if errors.Is(err, driver.ErrReleaseNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the release: %w", err)
	}
	revisions := make([]*v1.Release, 0, len(list))
	for _, one := range list {
		if rel, ok := one.(*v1.Release); ok {
			revisions = append(revisions, rel)
		}
	}
	releaseutil.SortByRevision(revisions)
	return revisions, nil
}

// deployedOf is the last revision that is deployed; nil if none is.
func deployedOf(history []*v1.Release) *v1.Release {
	for i := len(history) - 1; i >= 0; i-- {
		if history[i].Info.Status == common.StatusDeployed {
			return history[i]
		}
	}
	return nil
}
