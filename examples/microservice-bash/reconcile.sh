#!/usr/bin/env bash
set -euo pipefail
# rolewright:rbac core configmaps,resourcequotas,serviceaccounts,services get,list,watch,create,patch
# rolewright:rbac apps deployments get,list,watch,create,patch
# rolewright:rbac autoscaling horizontalpodautoscalers get,list,watch,create,patch,delete

echo '{"type": "progress", "step": "Apply the manifests"}' >&3
kubectl create -f "$ROLEWRIGHT_OBJECT" --dry-run=client --validate=false -o go-template-file=manifests.yaml.tmpl | kubectl apply -f -

if ! grep -q '"maxReplicas"' "$ROLEWRIGHT_OBJECT"; then
  echo '{"type": "progress", "step": "Remove an autoscaler that is not wanted"}' >&3
  kubectl delete horizontalpodautoscaler "$ROLEWRIGHT_NAME" --namespace="$ROLEWRIGHT_NAMESPACE" --ignore-not-found
fi
