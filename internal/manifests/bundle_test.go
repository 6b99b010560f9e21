package manifests

import (
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/rolewright/rolewright/test/must"
)

// In the bundle, the operator's service account gets the rules that are bound to it, in the same scope, and no others.
func TestBundle_PermissionsAreThoseOfTheOperator(t *testing.T) {
	const stream = `
{apiVersion: apps/v1, kind: Deployment, metadata: {name: shop-controller-manager, namespace: shop, labels: {app.kubernetes.io/name: shop}}, spec: {template: {spec: {
  serviceAccountName: shop-manager, containers: [{name: manager, image: shop, env: [{name: WATCH_NAMESPACE, value: shop}, {name: OTHER, value: a}]}]}}}}
---
{apiVersion: operators.coreos.com/v1alpha1, kind: ClusterServiceVersion, metadata: {name: shop.v0.0.0}, spec: {}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: manager}, rules: [{verbs: [role]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: manager}, rules: [{verbs: [clusterrole]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: reader}, rules: [{verbs: [reader]}]}
---
{kind: RoleBinding, metadata: {name: a}, roleRef: {kind: Role, name: manager}, subjects: [{kind: ServiceAccount, name: shop-manager}]}
---
{kind: ClusterRoleBinding, metadata: {name: b}, roleRef: {kind: ClusterRole, name: manager}, subjects: [{kind: ServiceAccount, name: shop-manager}]}
---
{kind: RoleBinding, metadata: {name: c}, roleRef: {kind: ClusterRole, name: manager}, subjects: [{kind: ServiceAccount, name: shop-manager}]}
---
{kind: ClusterRoleBinding, metadata: {name: d}, roleRef: {kind: ClusterRole, name: reader}, subjects: [{kind: ServiceAccount, name: prometheus}]}
`
	files, _, err := Bundle([]byte(stream), "0.1.0", "")
	must.Do(t, err)
	var csv struct {
		Spec struct {
			Install struct {
				Spec struct {
					Permissions, ClusterPermissions []struct {
						Rules []struct{ Verbs []string }
					}
					Deployments []struct {
						Spec struct {
							Template struct {
								Spec struct {
									Containers []struct{ Env []struct{ Name string } }
								}
							}
						}
					}
				}
			}
		}
	}
	must.Do(t, yaml.Unmarshal(files["manifests/shop.clusterserviceversion.yaml"], &csv))
	is := csv.Spec.Install.Spec
	var got []string
	for _, r := range is.ClusterPermissions[0].Rules {
		got = append(got, "cluster "+r.Verbs[0])
	}
	for _, r := range is.Permissions[0].Rules {
		got = append(got, r.Verbs[0])
	}
	for _, e := range is.Deployments[0].Spec.Template.Spec.Containers[0].Env {
		got = append(got, e.Name)
	}
	must.Be(t, "rules and variables", []string{"cluster clusterrole", "clusterrole", "role", "OTHER", "WATCH_NAMESPACE"}, got)
	for _, name := range []string{"manifests/reader.clusterrole.yaml", "manifests/d.clusterrolebinding.yaml"} {
		if files[name] == nil {
			t.Errorf("%s is missing", name)
		}
	}
}
