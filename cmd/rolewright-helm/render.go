package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/engine"
	release "helm.sh/helm/v4/pkg/release/v1"
	releaseutil "helm.sh/helm/v4/pkg/release/v1/util"
	"sigs.k8s.io/yaml"
)

// labelInputs is on each revision: a digest of what it was rendered from. Helm's storage does not
// keep a chart's subcharts.
const labelInputs = "rolewright.dev/inputs"

// rendered is what a chart renders from values.
type rendered struct {
	manifest string
	hooks    []*release.Hook
}

// wanted returns what the release should be: what the chart renders. A revision that was rendered from the same chart and
// values has that already. It also finds out whether the revision is trusted.
func (h *handler) wanted(ctx context.Context, is *release.Release) (wanted rendered, err error) {
	gone := false
	if is != nil {
		if h.trusted, err = h.sealed(is); err != nil {
			return rendered{}, err
		}
		inputs, err := h.inputs()
		if err != nil {
			return rendered{}, err
		}
		if h.trusted {
			if gone, err = h.served(is); err != nil {
				return rendered{}, err
			}
		}
		if h.trusted && !gone && is.Labels[labelInputs] == inputs {
			return rendered{manifest: is.Manifest, hooks: is.Hooks}, nil
		}
	}
	h.reports.progress("Render the chart %s %s", h.chart.Name(), h.chart.Metadata.Version)
	if wanted, err = h.render(ctx, is); err == nil && gone {
		_, err = h.kube.Build(strings.NewReader(wanted.manifest), false) // else an upgrade would fail, and be rolled back, each time
	}
	return wanted, err
}

// render returns the manifest and the hooks that the chart renders from the current values. To be comparable with
// the revision is, it renders for the same revision number.
func (h *handler) render(ctx context.Context, is *release.Release) (rendered, error) {
	options := common.ReleaseOptions{Name: h.name(), Namespace: h.in.Object.GetNamespace(), Revision: 1, IsInstall: true}
	if is != nil {
		options.Revision, options.IsInstall, options.IsUpgrade = is.Version, is.Version == 1, is.Version > 1
	}
	caps, err := h.capabilities()
	if err != nil {
		return rendered{}, err
	}
	if required := h.chart.Metadata.KubeVersion; required != "" && !chartutil.IsCompatibleRange(required, caps.KubeVersion.String()) {
		// No refusal: the cluster may be upgraded, and no event would tell.
		return rendered{}, fmt.Errorf("chart requires kubeVersion: %s which is incompatible with Kubernetes %s", required, caps.KubeVersion.Version)
	}
	all, err := util.ToRenderValuesWithSchemaValidation(h.chart, h.values, options, caps, true)
	if err != nil {
		return rendered{}, refusal{err}
	}
	values, _ := all["Values"].(common.Values)
	if err := util.ValidateAgainstSchema(h.chart, values); err != nil {
		if strings.Contains(err.Error(), `failing loading "http`) { // text, because Helm joins the errors of subcharts
			// No refusal: the schema may be available the next time.
			return rendered{}, fmt.Errorf("values.schema.json of the chart refers to a schema that cannot be loaded: %w", err)
		}
		return rendered{}, refusef("the spec does not match values.schema.json of the chart: %w", err)
	}
	render := engine.New(h.rest).RenderWithContext
	if option := h.in.settings.DryRunOption; option == "client" {
		render = engine.Engine{}.RenderWithContext // without lookup
	}
	files, err := render(ctx, h.chart, all)
	if err != nil {
		return rendered{}, fmt.Errorf("the chart does not render: %w", err)
	}
	for name := range files {
		if strings.HasSuffix(name, "NOTES.txt") || strings.HasPrefix(path.Base(name), "_") {
			delete(files, name)
		}
	}
	hooks, manifests, err := releaseutil.SortManifests(files, nil, releaseutil.InstallOrder)
	if err != nil {
		return rendered{}, fmt.Errorf("the chart does not render: %w", err)
	}
	var text strings.Builder
	for _, m := range manifests {
		fmt.Fprintf(&text, "---\n# Source: %s\n%s\n", m.Name, m.Content)
	}
	return rendered{text.String(), hooks}, nil
}

func (h *handler) capabilities() (*common.Capabilities, error) {
	if h.config.Capabilities != nil {
		return h.config.Capabilities, nil
	}
	version, err := h.discovery.ServerVersion()
	if err != nil {
		return nil, fmt.Errorf("ask the API server for its version: %w", cause(err))
	}
	served, err := action.GetVersionSet(h.discovery) // without an error if only some groups do not answer
	if err != nil {
		return nil, err
	}
	h.config.Capabilities = &common.Capabilities{
		APIVersions: served, HelmVersion: common.DefaultCapabilities.HelmVersion,
		KubeVersion: common.KubeVersion{Version: version.GitVersion, Major: version.Major, Minor: version.Minor},
	}
	return h.config.Capabilities, nil
}

// due tells whether the release has to be upgraded: its objects would differ, and so do the chart
// or the values. Objects that differ for no such reason (random values, the time) are left alone.
func (h *handler) due(is *release.Release, wanted string) (upgrade bool, err error) {
	if wanted == is.Manifest {
		return false, nil
	}
	if err := h.compare(is, wanted); err != nil || len(h.differ) == 0 {
		return false, err
	}
	// A trusted revision was rendered from other inputs; otherwise it would be what is wanted.
	if h.trusted || h.broken {
		return true, nil
	}
	same := (equal(is.Config, h.values) || len(is.Config)+len(h.values) == 0) && sameChart(is.Chart, h.chart)
	if made := is.Labels[labelInputs]; made != "" { // it covers subcharts, which Helm's records do not keep
		inputs, err := h.inputs()
		if err != nil {
			return false, err
		}
		same = same && made == inputs // Helm's command line copies the label
	}
	if same {
		h.nonDeterministic = named(h.differ)
	}
	return !same, nil
}

// compare sets differ and changes to the objects in which the manifests differ.
func (h *handler) compare(is *release.Release, wanted string) error {
	before, err := parse(is.Manifest)
	if err != nil {
		return fmt.Errorf("the manifest of revision %d: %w", is.Version, err)
	}
	after, err := parse(wanted)
	if err != nil {
		return fmt.Errorf("the chart does not render objects: %w", err)
	}
	h.differ = differing(before, after)
	h.changes = changesOf(h.differ, before, after)
	return nil
}

// sayNonDeterministic reports which objects [handler.due] has left alone.
func (h *handler) sayNonDeterministic() {
	if h.nonDeterministic != "" {
		h.reports.event("Warning", "NonDeterministicChart",
			"The chart renders different objects from the same values (random values, the time, lookups), and they are left unchanged: "+h.nonDeterministic)
	}
}

// sayIfNonDeterministic reports that about a revision that this run has made: until its inputs change, no other run
// renders it again.
func (h *handler) sayIfNonDeterministic(ctx context.Context, is *release.Release) {
	again, err := h.render(ctx, is)
	if err != nil {
		return // then it is just not reported
	}
	before, err := parse(is.Manifest)
	if err != nil {
		return
	}
	if after, err := parse(again.manifest); err == nil {
		h.nonDeterministic = named(differing(before, after))
		h.sayNonDeterministic()
	}
}

// named lists the first five names.
func named(list []string) string { return strings.Join(list[:min(len(list), 5)], ", ") }

// changesOf returns the differences between the named objects of two manifests.
func changesOf(names []string, before, after map[string]any) string {
	var d diffs
	for _, name := range names {
		was, _ := before[name].(map[string]any)
		is, _ := after[name].(map[string]any)
		d.add(name, was, is)
	}
	return d.String()
}

// inputs returns a digest of the chart with its subcharts, and of the values. The version of Kubernetes is no input:
// a chart with random objects would make others after each upgrade of the cluster.
func (h *handler) inputs() (string, error) {
	hash := sha256.New()
	if err := json.NewEncoder(hash).Encode(h.values); err != nil {
		return "", err
	}
	var add func(c *v2.Chart) error
	add = func(c *v2.Chart) error {
		if err := json.NewEncoder(hash).Encode(content(c)); err != nil {
			return err
		}
		for _, below := range c.Dependencies() {
			if err := add(below); err != nil {
				return err
			}
		}
		return nil
	}
	if err := add(h.chart); err != nil {
		return "", err
	}
	return hex.EncodeToString(hash.Sum(nil))[:40], nil
}

// content returns what a chart is rendered from, without times.
func content(c *v2.Chart) any {
	files := func(list []*common.File) map[string][]byte {
		m := map[string][]byte{}
		for _, f := range list {
			if f != nil {
				m[f.Name] = f.Data
			}
		}
		return m
	}
	return []any{c.Metadata, files(c.Templates), files(c.Files), c.Values}
}

func sameChart(a, b *v2.Chart) bool { return a != nil && equal(content(a), content(b)) }

// equal compares the JSON of two values, since one of them comes from the storage.
func equal(a, b any) bool {
	one, err := json.Marshal(a)
	if err != nil {
		return false
	}
	other, err := json.Marshal(b)
	return err == nil && string(one) == string(other)
}

// parse reads the objects of a manifest, by kind and name.
func parse(manifest string) (map[string]any, error) {
	objects := map[string]any{}
	documents := releaseutil.SplitManifests(manifest)
	for _, key := range slices.Sorted(maps.Keys(documents)) {
		var obj map[string]any
		if err := yaml.Unmarshal([]byte(documents[key]), &obj); err != nil {
			return nil, err
		}
		if obj == nil {
			continue
		}
		meta, _ := obj["metadata"].(map[string]any)
		name := fmt.Sprintf("%v %v", obj["kind"], meta["name"])
		if meta["namespace"] != nil {
			name = fmt.Sprintf("%v %v/%v", obj["kind"], meta["namespace"], meta["name"])
		}
		for objects[name] != nil {
			name += "'" // an object of another group, or a duplicate
		}
		objects[name] = obj
	}
	return objects, nil
}

// differing returns the names of objects that are in only one of the maps, or differ.
func differing(a, b map[string]any) []string {
	var names []string
	for name, is := range a {
		if !reflect.DeepEqual(is, b[name]) {
			names = append(names, name)
		}
	}
	for name := range b {
		if a[name] == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
