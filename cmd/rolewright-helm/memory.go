package main

import (
	"slices"
	"sync"

	"helm.sh/helm/v4/pkg/release"
	"helm.sh/helm/v4/pkg/release/v1"
	"helm.sh/helm/v4/pkg/storage/driver"
)

// inMemory is Helm's storage in memory, for one release. Helm's own refuses names that contain ".v", such as shop.v2. It is
// safe for concurrent use, because Helm's installation goes on for a while after it is stopped.
type inMemory struct {
	mu        sync.Mutex
	revisions []revision
}

type revision struct {
	key     string
	release *v1.Release
}

// Name implements [driver.Driver].
func (*inMemory) Name() string { return driver.MemoryDriverName }

// at returns the index of a revision, or -1. The caller holds the lock.
func (m *inMemory) at(key string) int {
	return slices.IndexFunc(m.revisions, func(s revision) bool { return s.key == key })
}

// Create implements [driver.Driver].
func (m *inMemory) Create(key string, rel release.Releaser) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	is, ok := rel.(*v1.Release)
	switch {
	case !ok:
		return driver.ErrInvalidKey
	case m.at(key) >= 0:
		return driver.ErrReleaseExists
	}
	m.revisions = append(m.revisions, revision{key, is})
	return nil
}

// Update implements [driver.Driver].
func (m *inMemory) Update(key string, rel release.Releaser) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	is, ok := rel.(*v1.Release)
	i := m.at(key)
	if !ok || i < 0 {
		return driver.ErrReleaseNotFound
	}
	m.revisions[i].release = is
	return nil
}

// Delete implements [driver.Driver].
func (m *inMemory) Delete(key string) (release.Releaser, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := m.at(key)
	if i < 0 {
		return nil, driver.ErrReleaseNotFound
	}
	is := m.revisions[i].release
	m.revisions = slices.Delete(m.revisions, i, i+1)
	return is, nil
}

// Get implements [driver.Driver].
func (m *inMemory) Get(key string) (release.Releaser, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := m.at(key)
	if i < 0 {
		return nil, driver.ErrReleaseNotFound
	}
	return m.revisions[i].release, nil
}

// List implements [driver.Driver].
func (m *inMemory) List(filter func(release.Releaser) bool) (found []release.Releaser, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.revisions {
		if filter(s.release) {
			found = append(found, s.release)
		}
	}
	return found, nil
}

// Query implements [driver.Driver] for the labels that Helm asks for.
func (m *inMemory) Query(labels map[string]string) ([]release.Releaser, error) {
	found, err := m.List(func(rel release.Releaser) bool {
		is, _ := rel.(*v1.Release)
		has := map[string]string{"owner": "helm", "name": is.Name, "status": is.Info.Status.String()}
		for label, want := range labels {
			if has[label] != want {
				return false
			}
		}
		return true
	})
	if err == nil && len(found) == 0 {
		err = driver.ErrReleaseNotFound
	}
	return found, err
}
