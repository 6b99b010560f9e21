#!/usr/bin/env bash
set -euo pipefail
# rolewright:rbac core configmaps,resourcequotas,serviceaccounts,services get,list,watch,create,patch
# rolewright:rbac apps deployments get,list,watch,create,patch
# rolewright:rbac autoscaling horizontalpodautoscalers get,list,watch,create,patch,delete

show() { kubectl create -f "$ROLEWRIGHT_OBJECT" --dry-run=client --validate=false -o "$1"; }

echo '{"type": "progress", "step": "Apply the manifests"}' >&3
made=$(show "go-template-file=$1" | kubectl apply -f -)

most=$(show 'jsonpath={.spec.maxReplicas}')
if [[ -z $most ]]; then
  echo '{"type": "progress", "step": "Remove an autoscaler that is not wanted"}' >&3
  made+=$'\n'$(kubectl delete horizontalpodautoscaler "$ROLEWRIGHT_NAME" --namespace="$ROLEWRIGHT_NAMESPACE" --ignore-not-found)
fi

changed=false
if grep -Ev '^$| unchanged$' <<<"$made"; then changed=true; fi
echo "{\"type\": \"result\", \"verdict\": \"ok\", \"changed\": $changed}" >&3
