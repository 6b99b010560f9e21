package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"helm.sh/helm/v4/pkg/release"
	"helm.sh/helm/v4/pkg/release/common"
	"helm.sh/helm/v4/pkg/release/v1"
	releaseutil "helm.sh/helm/v4/pkg/release/v1/util"
	"helm.sh/helm/v4/pkg/storage/driver"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/wait"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/util/retry"
)

// records is the storage of a run. Helm's actions see only what the run read, and checked, at its
// start, and what they have written themselves. So someone who may write the Secrets cannot change
// it during the run.
type records struct {
	*inMemory
	secrets *driver.Secrets
	listed  *listing
	read    bool
	// cut holds the full manifests of revisions from which objects are left out, because their kinds are no longer served.
	// The keys are the salts of the revisions.
	cut map[string]string
	// hooks holds all hooks of the revisions from which hooks are left out, because they have succeeded. The keys are the
	// numbers of the revisions.
	hooks map[int][]*v1.Hook
}

// whole returns a revision as its record and its seal have it: with the objects and hooks that are left out during the run.
func (r *records) whole(is *v1.Release) *v1.Release {
	manifest, cut := r.cut[is.Labels[labelSalt]]
	hooks, hidden := r.hooks[is.Version]
	if !cut && !hidden {
		return is
	}
	whole := *is
	if cut {
		whole.Manifest = manifest
	}
	if hidden {
		whole.Hooks = hooks
	}
	return &whole
}

// leaveOut hides hooks of a revision from Helm.
func (r *records) leaveOut(is *v1.Release, hidden func(*v1.Hook) bool) {
	r.hooks = map[int][]*v1.Hook{is.Version: is.Hooks}
	is.Hooks = slices.DeleteFunc(slices.Clone(is.Hooks), hidden)
}

// Create implements [driver.Driver].
func (r *records) Create(key string, rel release.Releaser) error {
	is, _ := rel.(*v1.Release) // Helm stores nothing else
	if err := r.secrets.Create(key, r.whole(is)); err != nil {
		return fitting(err)
	}
	return r.inMemory.Create(key, rel)
}

// Update implements [driver.Driver]. It repeats a write that fails for a moment, with pauses of 8 seconds in all: the next run would
// do again, or roll back, what the record does not say.
func (r *records) Update(key string, rel release.Releaser) error {
	often := wait.Backoff{Steps: 6, Duration: 250 * time.Millisecond, Factor: 2}
	is, _ := rel.(*v1.Release) // Helm stores nothing else
	if err := retry.OnError(often, passing, func() error { return r.secrets.Update(key, r.whole(is)) }); err != nil {
		return fitting(err)
	}
	return r.inMemory.Update(key, rel)
}

// passing tells whether a write may succeed the next time, because the API server has not answered, or cannot now.
func passing(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true
	}
	code := status.Status().Code
	return code >= http.StatusInternalServerError || code == http.StatusTooManyRequests
}

// fitting says what to do about a release that does not fit into its Secret: Helm does not split it.
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
	return r.inMemory.Delete(key)
}

// labelRecord names the Secret that a revision was read from. It exists within the program only.
const labelRecord = "rolewright.dev/record"

// listing is the client of Helm's driver. The driver silently skips records that it cannot decode, so
// listing keeps the names of all Secrets that were listed.
type listing struct {
	corev1client.SecretInterface
	names []string
}

func (l *listing) List(ctx context.Context, options metav1.ListOptions) (*corev1.SecretList, error) {
	list, err := l.SecretInterface.List(ctx, options)
	if err != nil {
		return nil, err
	}
	l.names = nil
	for i := range list.Items {
		item := &list.Items[i]
		l.names = append(l.names, item.Name)
		item.Labels = with(item.Labels, map[string]string{labelRecord: item.Name})
	}
	return list, nil
}

// annotationOwned with the value "none" tells the API proxy that an object has no owner.
const annotationOwned = "rolewright.dev/owner"

// Create makes a record without an owner: in a foreground deletion, the garbage collector would delete it
// before the finalizer has read it.
func (l *listing) Create(ctx context.Context, secret *corev1.Secret, options metav1.CreateOptions) (*corev1.Secret, error) {
	secret.Annotations = with(secret.Annotations, map[string]string{annotationOwned: "none"})
	return l.SecretInterface.Create(ctx, secret, options)
}

// Update removes the owner of a record that has one.
func (l *listing) Update(ctx context.Context, secret *corev1.Secret, options metav1.UpdateOptions) (*corev1.Secret, error) {
	secret.Annotations = with(secret.Annotations, map[string]string{annotationOwned: "none"})
	return l.SecretInterface.Update(ctx, secret, options)
}

// load reads the revisions of the release. It ignores the name and namespace in the records: with others, an
// upgrade would render the chart for another namespace.
func (r *records) load(name, namespace string) error {
	list, err := r.secrets.Query(map[string]string{"name": name, "owner": "helm"})
	if err != nil && !errors.Is(err, driver.ErrReleaseNotFound) {
		return err
	}
	unread := slices.Clone(r.listed.names)
	var revisions []*v1.Release
	for _, one := range list {
		rel, ok := one.(*v1.Release)
		if !ok {
			return fmt.Errorf("the release is of an unknown format: %T", one)
		}
		key, in := recordOf(name, rel.Version), rel.Labels[labelRecord]
		if in != key || rel.Info == nil {
			continue // its content contradicts its name
		}
		delete(rel.Labels, labelRecord)
		rel.Name, rel.Namespace = name, namespace
		if err := r.inMemory.Create(key, rel); err != nil {
			return err
		}
		revisions = append(revisions, rel)
		unread = slices.DeleteFunc(unread, func(other string) bool { return other == in })
	}
	releaseutil.SortByRevision(revisions)
	if err := decided(name, revisions, unread); err != nil {
		return err
	}
	r.read = true
	return nil
}

// recordsOf is the prefix of the names of all records.
const recordsOf = "sh.helm.release.v1."

// recordOf returns the name of the Secret of a revision.
func recordOf(name string, version int) string {
	return fmt.Sprintf("%s%s.v%d", recordsOf, name, version)
}

// decided returns an error if one of the unreadable Secrets may be the record of the deployed revision: without
// it, the release would be installed again from scratch.
func decided(name string, revisions []*v1.Release, unread []string) error {
	newest := 0
	if len(revisions) > 0 {
		newest = revisions[len(revisions)-1].Version
	}
	var missing []string
	for _, secret := range unread {
		version, _ := strconv.Atoi(strings.TrimPrefix(secret, recordsOf+name+".v"))
		if secret != recordOf(name, version) || version < newest && deployedOf(revisions) != nil {
			note("the Secret %s is left: it has no record of a revision that can be read", secret)
			continue
		}
		missing = append(missing, secret)
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("the record of a revision cannot be read, and it may be the one that is deployed: Secret %s; restore it from a backup, "+
		"or delete it, so that the revision before it counts", named(missing))
}

// history returns the revisions of the release, the oldest first.
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

// recorded returns the release in the status of the object, for use if its records are gone: when a namespace is deleted,
// they can go first. It is not trusted, and has no hooks. It is nil if the status has none.
func (h *handler) recorded() (*v1.Release, error) {
	manifest, _, _ := unstructured.NestedString(h.in.Object.Object, "status", "deployedRelease", "manifest")
	if manifest == "" {
		return nil, nil
	}
	if strings.HasSuffix(manifest, "…") {
		h.reports.event("Warning", "UnverifiedRelease", "The records of the release are gone, and status.deployedRelease.manifest was too long to name all objects: some may be left")
	}
	rel := &v1.Release{Name: h.name(), Namespace: h.in.Object.GetNamespace(), Version: 1, Manifest: manifest, Info: &v1.Info{Status: common.StatusDeployed}}
	return rel, h.records.inMemory.Create(recordOf(rel.Name, rel.Version), rel)
}

// deployedOf returns the last revision that is deployed; nil if there is none. If its record was deleted, or Helm was killed
// between two writes, it returns the revision that was deployed before.
func deployedOf(history []*v1.Release) *v1.Release {
	for i := len(history) - 1; i >= 0; i-- {
		if history[i].Info.Status == common.StatusDeployed {
			return history[i]
		}
	}
	for i := len(history) - 1; i >= 0; i-- {
		switch status := history[i].Info.Status; {
		case status == common.StatusSuperseded:
			return history[i]
		case status != common.StatusFailed && !status.IsPending():
			return nil
		}
	}
	return nil
}

// deployed returns the revision that is deployed; nil if there is none. An installation that is sealed has succeeded, even if
// its record still says pending because the API server did not answer the last write.
func (h *handler) deployed(history []*v1.Release) (*v1.Release, error) {
	is := deployedOf(history)
	if is != nil || len(history) == 0 {
		return is, nil
	}
	last := history[len(history)-1]
	if last.Info.Status != common.StatusPendingInstall {
		return nil, nil
	}
	if sealed, err := h.sealed(last); !sealed {
		return nil, err
	}
	last.Info.Status = common.StatusDeployed
	if h.check() {
		return last, nil
	}
	if err := h.config.Releases.Update(last); err != nil {
		return nil, fmt.Errorf("write the record of revision %d, which is deployed: %w", last.Version, cause(err))
	}
	return last, nil
}
