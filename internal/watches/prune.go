package watches

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Prunes returns the kinds from which prune removes objects, in any of their versions: those of
// Kubernetes that hold no data, and pruneKinds. It returns none without prune.
func (w Watch) Prunes() []schema.GroupVersionKind {
	if !w.Prune {
		return nil
	}
	return slices.Concat([]schema.GroupVersionKind{
		{Version: "v1", Kind: "ConfigMap"},
		{Version: "v1", Kind: "Service"},
		{Version: "v1", Kind: "ServiceAccount"},
		{Group: "apps", Version: "v1", Kind: "DaemonSet"},
		{Group: "apps", Version: "v1", Kind: "Deployment"},
		{Group: "autoscaling", Version: "v2", Kind: "HorizontalPodAutoscaler"},
		{Group: "batch", Version: "v1", Kind: "CronJob"},
		{Group: "batch", Version: "v1", Kind: "Job"},
		{Group: "networking.k8s.io", Version: "v1", Kind: "Ingress"},
		{Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy"},
		{Group: "policy", Version: "v1", Kind: "PodDisruptionBudget"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "Role"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "RoleBinding"},
	}, w.PruneKinds)
}

func setPruneKinds(c *decoding, e *entry, a at) {
	c.elements(a, func(element at) {
		var kind schema.GroupVersionKind
		if object(c, element, kindFields(), &kind) == nil {
			return
		}
		if kind.Kind == "" || kind.Version == "" {
			c.error(element, "a kind to prune must have version and kind", `add "version:" and "kind:"`)
			return
		}
		e.watch.PruneKinds = append(e.watch.PruneKinds, kind)
	})
}

// checkPrune checks that the operator can know what to prune.
func (c *decoding) checkPrune(e *entry) {
	if kinds, said := e.keys["pruneKinds"]; said && !e.watch.Prune {
		c.error(kinds, "pruneKinds has no effect without prune", "add prune: true, or remove it")
	}
	if e.watch.Prune && !e.watch.WatchDependentResources {
		c.error(e.keys["prune"], "prune cannot be combined with watchDependentResources: false: the operator would not know what its objects own",
			"remove one of them")
	}
	if e.watch.PruneOnDelete && !e.watch.ManageStatus {
		c.error(e.keys["pruneOnDelete"], "pruneOnDelete cannot be combined with manageStatus: false: after a restart the operator would not know which kinds "+
			"an object owns, and the object would be deleted before them", "remove one of them")
	}
}
