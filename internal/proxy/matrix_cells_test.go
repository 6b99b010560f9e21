package proxy

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// The following functions return the kinds of the matrix.
func configMapKind() resource {
	return resource{apiVersion: "v1", kind: "ConfigMap", plural: "configmaps", content: `,"data":{"a":"1"}`}
}

func leaseKind() resource {
	return resource{
		apiVersion: "coordination.k8s.io/v1", kind: "Lease", plural: "leases", byPut: true,
		content: `,"spec":{"holderIdentity":"a","leaseTransitions":3}`,
	}
}

func thingKind() resource {
	return resource{
		apiVersion: "$GROUP/v1alpha1", kind: "Thing", plural: "things", custom: true,
		content: `,"spec":{"replicas":2,"text":"\u00e9\u2028","large":9007199254740993}`,
	}
}

func worldKind() resource {
	return resource{
		apiVersion: "$GROUP/v1alpha1", kind: "World", plural: "worlds", custom: true, global: true,
		content: `,"spec":{"n":1}`,
	}
}

func clusterRoleKind() resource {
	return resource{
		apiVersion: "rbac.authorization.k8s.io/v1", kind: "ClusterRole", plural: "clusterroles", global: true, byPut: true,
		content: `,"rules":[{"apiGroups":[""],"resources":["pods"],"verbs":["get"]}]`,
	}
}

func namespaceKind() resource {
	return resource{apiVersion: "v1", kind: "Namespace", plural: "namespaces", global: true}
}

// serviceKind returns a Service that no controller changes.
func serviceKind() resource {
	return resource{
		apiVersion: "v1", kind: "Service", plural: "services", content: `,"spec":{"type":"ExternalName","externalName":"a.example"}`,
	}
}

func serviceAccountKind() resource {
	return resource{apiVersion: "v1", kind: "ServiceAccount", plural: "serviceaccounts"}
}

func podKind() resource {
	return resource{
		apiVersion: "v1", kind: "Pod", plural: "pods",
		content: `,"spec":{"schedulerName":"none","serviceAccountName":"runner","automountServiceAccountToken":false,` +
			`"containers":[{"name":"c","image":"i"}]}`,
	}
}

// The metadata of objects that exist before the request.
const (
	free       = `,"labels":{"was":"there"}`
	ours       = `,"labels":{"was":"there"}$MARK`
	others     = `,"ownerReferences":[$OTHER]`
	elsewheres = `,"annotations":{"operator-sdk/primary-resource":"elsewhere/x","operator-sdk/primary-resource-type":"X.x"}`
	keptFree   = `,"annotations":{"rolewright.dev/owner":"none"}`
)

const (
	mediaJSON      = "application/json"
	mediaYAML      = "application/yaml"
	mediaProtobuf  = "application/vnd.kubernetes.protobuf"
	mediaCBOR      = "application/cbor"
	mediaApply     = "application/apply-patch+yaml"
	mediaApplyCBOR = "application/apply-patch+cbor"
	mediaMerge     = "application/merge-patch+json"
	mediaStrategic = "application/strategic-merge-patch+json"
	mediaJSONPatch = "application/json-patch+json"
)

// applying is the query of a server-side apply.
const applying = "?fieldManager=matrix"

// cells returns the whole matrix.
func cells() []cell {
	return slices.Concat(
		creations(), patches(), patchesOfTheMark(), patchesOfNothing(), replacements(), applies(), dryRuns(),
		alreadyOwned(), headers(), spellings(), lossy(), malformed(), subresources(), questions(),
	)
}

// creations create objects with every verb that can, in every encoding, namespaced and cluster-scoped, for both kinds of
// owner.
func creations() []cell {
	type way struct {
		method, media string
		body          func(resource) string
	}
	plain := func(r resource) string { return r.object("") }
	generated := func(r resource) string { return r.with(`"generateName":"$NAME-"`) }
	ways := []way{
		{http.MethodPost, mediaJSON, plain},
		{http.MethodPost, mediaJSON, generated},
		{http.MethodPost, mediaYAML, plain},
		{http.MethodPost, mediaProtobuf, plain},
		{http.MethodPost, mediaProtobuf, generated},
		{http.MethodPut, mediaJSON, plain},
		{http.MethodPut, mediaProtobuf, plain},
		{http.MethodPatch, mediaApply, plain},
		{http.MethodPatch, mediaApplyCBOR, plain},
	}
	places := []cell{
		{name: "a config map", of: configMapKind()},
		{name: "a config map elsewhere", of: configMapKind(), away: true},
		{name: "a lease", of: leaseKind()},
		{name: "a lease elsewhere", of: leaseKind(), away: true},
		{name: "a custom resource", of: thingKind()},
		{name: "a custom resource elsewhere", of: thingKind(), away: true},
		{name: "a cluster role", of: clusterRoleKind()},
		{name: "a custom resource of the cluster", of: worldKind()},
		{name: "a namespace", of: namespaceKind()},
	}
	var all []cell
	for _, c := range places {
		for _, w := range ways {
			if w.media == mediaProtobuf && c.of.custom || w.method == http.MethodPut && !c.of.byPut {
				continue
			}
			for _, by := range []asker{{}, {global: true}} {
				c := c
				c.by, c.method, c.media, c.body, c.code = by, w.method, w.media, w.body(c.of), http.StatusCreated
				if w.method == http.MethodPatch {
					c.query = applying
				}
				c.name = fmt.Sprintf("%s %s in %s, generated %t, for an owner of the cluster %t",
					w.method, c.name, w.media, strings.Contains(c.body, "generateName"), by.global)
				c.want = c.owned()
				all = append(all, c)
			}
		}
	}
	return all
}

// patch is the content type and body of a patch that changes an object.
type patch struct{ media, body string }

func patchesOfEachSort() []patch {
	return []patch{
		{mediaMerge, `{"data":{"b":"2"}}`},
		{mediaStrategic, `{"data":{"b":"2"}}`},
		{mediaJSONPatch, `[{"op":"add","path":"/data/b","value":"2"}]`},
	}
}

// patches change existing objects with and without owners.
func patches() []cell {
	states := []struct {
		name, before string
		adopted      bool
	}{
		{"no one's", free, true},
		{"the owner's", ours, false},
		{"someone else's", others, false},
		{"annotated as someone else's", elsewheres, false},
		{"kept from owners", keptFree, false},
	}
	var all []cell
	for _, p := range patchesOfEachSort() {
		for _, s := range states {
			for _, away := range []bool{false, true} {
				for _, adopt := range []bool{false, true} {
					c := cell{
						name: fmt.Sprintf("%s of an object that is %s, elsewhere %t, adopting %t", p.media, s.name, away, adopt),
						by:   asker{adopt: adopt}, of: configMapKind(), away: away, before: s.before,
						method: http.MethodPatch, media: p.media, body: p.body, code: http.StatusOK, want: unmarked,
					}
					if s.before == ours || adopt && s.adopted {
						c.want = c.owned()
					}
					all = append(all, c)
				}
			}
		}
	}
	return all
}

// patchesOfTheMark change the owner references or annotations themselves.
func patchesOfTheMark() []cell {
	all := []cell{
		{name: "merge patch that takes the owner off", before: ours, media: mediaMerge, body: `{"metadata":{"ownerReferences":null}}`, want: unmarked},
		{name: "strategic merge patch that takes the owner off", before: ours, media: mediaStrategic, body: `{"metadata":{"ownerReferences":[$OWN,{"$patch":"replace"}]}}`, want: reference},
		{name: "JSON patch that takes the owner off", before: ours, media: mediaJSONPatch, body: `[{"op":"remove","path":"/metadata/ownerReferences"}]`, want: unmarked},
		{name: "merge patch that adds another owner to no one's", before: free, media: mediaMerge, body: `{"metadata":{"ownerReferences":[$OTHER]}}`, want: reference},
		{name: "strategic merge patch that adds another owner to no one's", before: free, media: mediaStrategic, body: `{"metadata":{"ownerReferences":[$OTHER]}}`, want: reference},
		{name: "JSON patch that adds another owner to no one's", before: free, media: mediaJSONPatch, body: `[{"op":"add","path":"/metadata/ownerReferences","value":[$OTHER]}]`, want: reference},
		{name: "strategic merge patch that adds another owner to the owner's", before: ours, media: mediaStrategic, body: `{"metadata":{"ownerReferences":[$OTHER]}}`, want: reference},
		{name: "merge patch that keeps no one's from owners", before: free, media: mediaMerge, body: `{"metadata":{"annotations":{"rolewright.dev/owner":"none"}}}`, want: unmarked},
		{name: "merge patch that takes all annotations off elsewhere", away: true, before: free, media: mediaMerge, body: `{"metadata":{"annotations":null}}`, want: annotated},
		{name: "merge patch that changes nothing", before: free, media: mediaMerge, body: `{}`, want: reference},
		{name: "JSON patch that changes nothing", before: free, media: mediaJSONPatch, body: `[]`, want: reference},
		{name: "JSON patch of which the test fails", before: free, media: mediaJSONPatch, body: `[{"op":"test","path":"/data/a","value":"9"}]`, code: http.StatusUnprocessableEntity, want: unmarked},
		{name: "merge patch of another version of the object", before: free, media: mediaMerge, body: `{"metadata":{"resourceVersion":"1"}}`, code: http.StatusConflict, want: unmarked},
	}
	for i := range all {
		c := &all[i]
		c.by.adopt, c.of, c.method = true, configMapKind(), http.MethodPatch
		if c.code == 0 {
			c.code = http.StatusOK
		}
	}
	return all
}

// patchesOfNothing patch objects that do not exist: the answer is 404, even if a PUT would create the object.
func patchesOfNothing() []cell {
	var all []cell
	for _, r := range []resource{configMapKind(), leaseKind(), clusterRoleKind(), thingKind(), worldKind()} {
		for _, p := range patchesOfEachSort() {
			if p.media == mediaStrategic && r.custom {
				continue
			}
			all = append(all, cell{
				name: p.media + " of no " + r.kind, by: asker{adopt: true}, of: r,
				method: http.MethodPatch, media: p.media, body: p.body, code: http.StatusNotFound, want: unmarked,
			})
		}
	}
	return all
}

// replacements are PUTs of existing objects, and of missing ones that a PUT cannot create.
func replacements() []cell {
	all := []cell{
		{name: "one that is not there", body: configMapKind().object(""), code: http.StatusNotFound, want: unmarked},
		{name: "one that is not there, with its UID", body: configMapKind().object(`,"uid":"0-0"`), code: http.StatusNotFound, want: unmarked},
		{name: "no one's", before: free, body: configMapKind().object(""), want: unmarked},
		{name: "no one's, adopting", before: free, by: asker{adopt: true}, body: configMapKind().object(""), want: reference},
		{name: "no one's elsewhere, adopting", away: true, before: free, by: asker{adopt: true}, body: configMapKind().object(""), want: annotated},
		{name: "someone else's, adopting", before: others, by: asker{adopt: true}, body: configMapKind().object(others), want: unmarked},
		{name: "someone else's, freeing it", before: others, by: asker{adopt: true}, body: configMapKind().object(""), want: unmarked},
		{name: "the owner's", before: ours, body: configMapKind().object(""), want: reference},
		{name: "the owner's, for an owner of the cluster", before: ours, by: asker{global: true}, away: true, body: configMapKind().object(""), want: reference},
		{name: "the owner's elsewhere", before: ours, away: true, body: configMapKind().object(""), want: annotated},
		{name: "the owner's with its mark", before: ours, body: configMapKind().object(ours), want: reference},
		{name: "the owner's elsewhere with its mark", away: true, before: ours, body: configMapKind().object(ours), want: annotated},
		{name: "the owner's in YAML", before: ours, media: mediaYAML, body: configMapKind().object(""), want: reference},
		{name: "the owner's in protobuf", before: ours, media: mediaProtobuf, body: configMapKind().object(""), want: reference},
		{name: "the owner's in CBOR", before: ours, media: mediaCBOR, body: configMapKind().object(""), want: reference},
		{name: "the owner's, giving it to someone else too", before: ours, body: configMapKind().object(others), want: reference},
		{name: "the owner's, keeping it from owners", before: ours, body: configMapKind().object(keptFree), want: unmarked},
		{name: "the owner's, injecting nothing", by: asker{silent: true}, before: ours, body: configMapKind().object(""), want: unmarked},
		{name: "the owner's, a later one", before: ours, body: configMapKind().object(`,"resourceVersion":"1"`), code: http.StatusConflict, want: reference},
	}
	for i := range all {
		c := &all[i]
		c.name, c.of, c.method = "PUT "+c.name, configMapKind(), http.MethodPut
		if c.media == "" {
			c.media = mediaJSON
		}
		if c.code == 0 {
			c.code = http.StatusOK
		}
	}
	return all
}

// applies are server-side applies of existing objects.
func applies() []cell {
	const another, forced = "?fieldManager=another", "?fieldManager=another&force=true"
	changed := strings.Replace(configMapKind().object(""), `"1"`, `"2"`, 1)
	all := []cell{
		{name: "again without the owner", before: ours, query: applying, body: changed, want: reference},
		{name: "again elsewhere without the owner", away: true, before: ours, query: applying, body: changed, want: annotated},
		{name: "again of a custom resource", of: thingKind(), before: ours, query: applying, body: thingKind().object(""), want: reference},
		{name: "again of a cluster role", of: clusterRoleKind(), before: ours, query: applying, body: clusterRoleKind().object(""), want: annotated},
		{name: "again in CBOR", before: ours, query: applying, media: mediaApplyCBOR, body: changed, want: reference},
		{name: "again, injecting nothing", by: asker{silent: true}, before: ours, query: applying, body: changed, want: unmarked},
		{name: "again, keeping it from owners", before: ours, query: applying, body: configMapKind().object(keptFree), want: unmarked},
		{name: "by another manager", before: ours, query: another, body: configMapKind().object(""), want: reference},
		{name: "by another manager, in conflict", before: ours, query: another, body: changed, code: http.StatusConflict, want: reference},
		{name: "by another manager, forced", before: ours, query: forced, body: changed, want: reference},
		{name: "by another manager elsewhere, forced", away: true, before: ours, query: forced, body: changed, want: annotated},
		{name: "to no one's", before: free, query: applying, body: changed, want: unmarked},
		{name: "to no one's, adopting", by: asker{adopt: true}, before: free, query: applying, body: changed, want: reference},
		{name: "to no one's elsewhere, adopting", by: asker{adopt: true}, away: true, before: free, query: forced, body: changed, want: annotated},
		{name: "to someone else's, adopting", by: asker{adopt: true}, before: others, query: forced, body: changed, want: unmarked},
		{name: "without a manager", query: "?force=true", body: changed, code: http.StatusUnprocessableEntity, want: unmarked},
		{name: "of another name", query: applying, body: configMapKind().with(`"name":"another"`), code: http.StatusBadRequest, want: unmarked},
		{name: "of a UID that is not there", query: applying, body: configMapKind().object(`,"uid":"0-0"`), code: http.StatusConflict, want: unmarked},
	}
	for i := range all {
		c := &all[i]
		c.name, c.method = "apply "+c.name, http.MethodPatch
		if c.of.kind == "" {
			c.of = configMapKind()
		}
		if c.media == "" {
			c.media = mediaApply
		}
		if c.code == 0 {
			c.code = http.StatusOK
		}
	}
	return all
}

// dryRuns store nothing. Their answers contain the mark if the proxy writes it into the body.
func dryRuns() []cell {
	return []cell{
		{
			name: "POST dryRun", of: configMapKind(), method: http.MethodPost, query: "?dryRun=All", media: mediaJSON,
			body: configMapKind().object(""), code: http.StatusCreated, want: reference,
		},
		{
			name: "POST dryRun elsewhere", of: configMapKind(), away: true, method: http.MethodPost, query: "?dryRun=All", media: mediaJSON,
			body: configMapKind().object(""), code: http.StatusCreated, want: annotated,
		},
		{
			name: "POST dryRun of a wrong value", of: configMapKind(), method: http.MethodPost, query: "?dryRun=Some", media: mediaJSON,
			body: configMapKind().object(""), code: http.StatusUnprocessableEntity, want: unmarked,
		},
		{
			name: "POST dryRun in protobuf", of: configMapKind(), method: http.MethodPost, query: "?dryRun=All", media: mediaProtobuf,
			body: configMapKind().object(""), code: http.StatusCreated, want: unmarked,
		},
		{
			name: "PUT dryRun that would create", of: leaseKind(), method: http.MethodPut, query: "?dryRun=All", media: mediaJSON,
			body: leaseKind().object(""), code: http.StatusCreated, want: reference,
		},
		{
			name: "apply dryRun that would create", of: configMapKind(), method: http.MethodPatch, query: applying + "&dryRun=All", media: mediaApply,
			asIs: true, body: configMapKind().object(""), code: http.StatusCreated, want: reference,
		},
		{
			name: "merge patch dryRun, adopting", by: asker{adopt: true}, of: configMapKind(), before: free,
			method: http.MethodPatch, query: "?dryRun=All", media: mediaMerge, body: `{"data":{"b":"2"}}`, code: http.StatusOK, want: unmarked,
		},
	}
}
