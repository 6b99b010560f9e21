#!/usr/bin/env bash
# demo.sh: demonstrates Rolewright with the example operator. It installs the example's kind in the cluster of KUBECONFIG,
# starts the operator, and shows the tasks that run while a Memcached object is created, changed and deleted. It leaves
# nothing behind. `make demo` runs it on the development control plane.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ -z "${KUBECONFIG:-}" ]; then
  echo 'demo: KUBECONFIG is not set; call `make demo`, which starts a control plane and sets it' >&2
  exit 1
fi

definition=config/crd/bases/cache.example.com_memcacheds.yaml
name=memcached-sample
roles_made=(deployments,services,configmaps,pods --selector "app.kubernetes.io/instance=$name")
installed='' operator='' # whether the kind is installed; the operator's process ID
runs=$'RUN\tCAUSE\tGENERATION\tTOOK\tOK\tCHANGED\tRESULT\n'
colour=''
if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then colour=yes; fi

scratch=$(mktemp -d "${TMPDIR:-/tmp}/rolewright-demo-XXXXXX")
export KUBECACHEDIR=$scratch/kubectl
trap clean_up EXIT
trap 'echo "demo: interrupted" >&2; exit 130' INT TERM HUP

clean_up() {
  local code=$?
  trap '' INT TERM HUP # asking once is enough
  if [ -n "$operator" ]; then
    kill -TERM "$operator" 2>/dev/null || true
    local end=$((SECONDS + 45))
    while kill -0 "$operator" 2>/dev/null; do
      [ "$SECONDS" -lt "$end" ] || kill -KILL "$operator" || true
      [ "$SECONDS" -lt $((end + 5)) ] || { echo "demo: the operator, process $operator, cannot be killed" >&2; exit 1; }
      sleep 0.1
    done
    wait "$operator" || { code=$((code ? code : 1)); echo 'demo: the operator did not end as it should' >&2; }
  fi
  if [ -n "$installed" ]; then
    # The operator has ended and runs no finalizer any more: release an object that still has one.
    k --request-timeout 30s patch memcached "$name" --type merge --patch '{"metadata": {"finalizers": null}}' >/dev/null 2>&1 || true
    { k --request-timeout 30s delete --ignore-not-found --wait=false configmap "$name-farewell" &&
      bin/tools/kubectl --request-timeout 30s delete --ignore-not-found --wait=false --filename "$definition"; } >/dev/null || code=$((code ? code : 1))
  fi
  rm -rf "$scratch"
  exit "$code"
}

# fail TEXT: prints the text and the end of the operator's log, and exits.
fail() {
  printf 'demo: %s\n' "$1" >&2
  tail -n 15 "$scratch/log" >&2
  exit 1
}

k() { bin/tools/kubectl --namespace default "$@"; }

paint() { printf "${colour:+\e[$1m}%s${colour:+\e[0m}" "$2"; }

chapter() { printf '\n%s\n' "$(paint 1 "▶ $1")"; }

# align aligns rows of tab-separated cells into columns.
align() {
  awk -F '\t' '
    { for (i = 1; i <= NF; i++) { cell[NR, i] = $i; if (length($i) > width[i]) width[i] = length($i) } cells[NR] = NF }
    END {
      for (row = 1; row <= NR; row++) {
        for (i = 1; i < cells[row]; i++) printf "  %-" width[i] "s", cell[row, i]
        print "  " cell[row, cells[row]]
      }
    }'
}

# start starts the operator and waits until it watches the kind. The operator gets its own session, so that Ctrl-C reaches only
# this script, which then stops the operator as Kubernetes would. TMPDIR also keeps the Python client's discovery cache in scratch.
start() {
  mkdir "$scratch/tmp"
  TMPDIR=$scratch/tmp setsid bin/rolewright dev --allow-remote --no-apply --runner-root "$scratch/runner" --progress-interval 1s \
    --zap-log-level info >>"$scratch/log" 2>&1 &
  operator=$!
  exec 3< <(exec setsid tail --lines +1 --sleep-interval 0.1 --pid "$operator" --follow "$scratch/log")
  listen 60 'Memcached is watched$'
}

# listen SECONDS PATTERN: reads the operator's log until a line matches; BASH_REMATCH has the parts of the match.
listen() {
  local line left end=$((SECONDS + $1))
  while left=$((end - SECONDS)); [ "$left" -gt 0 ]; do
    IFS= read -rt "$left" line <&3 || { [ $? -gt 128 ] || fail 'the operator ended'; break; }
    if [[ $line =~ $2 ]]; then return; fi
  done
  fail "waited $1 seconds for the operator"
}

# since BEGAN: prints the hundredths of a second since BEGAN; since 0 prints the current time, for use as BEGAN.
since() { echo $((${EPOCHREALTIME//[!0-9]/} / 10000 - $1)); }

# follow CAUSE: waits for the run with this cause to start, and shows its tasks until it ends.
follow() {
  local began took id generation
  local -A codes=([ok]=32 [changed]=33 [failed]=31 [skipped]=36 [ignored]=36)
  began=$(since 0)
  listen 120 "Run starts.*\"job\": \"([^\"]+)\".*\"cause\": \"$1\".*\"generation\": ([0-9]+)"
  took=$(since "$began") id=${BASH_REMATCH[1]} generation=${BASH_REMATCH[2]}
  printf '  run %s starts, %s after the request\n' "${id::8}" "$(awk "BEGIN { print $took < 100 ? $took * 10 \"ms\" : $took / 100 \"s\" }")"
  while
    listen 180 "  Memcached/$name  (([a-z]+) +[0-9.]+s  (.*)|succeeded in (.*): (.*) ok, (.*) changed|[a-z ]+ after .*)\$"
    [ -n "${BASH_REMATCH[2]}" ]
  do
    took=$(since "$began")
    printf '  %4d.%ds  %s  %s\n' $((took / 100)) $((took / 10 % 10)) "$(paint "${codes[${BASH_REMATCH[2]}]}" "$(printf %-7s "${BASH_REMATCH[2]}")")" "${BASH_REMATCH[3]%%  *}"
  done
  [ -n "${BASH_REMATCH[4]}" ] || fail 'the run failed'
  printf '  Succeeded in %s: %s ok, %s changed\n' "${BASH_REMATCH[@]:4:3}"
  runs+=$(printf '%s\t' "${id::8}" "$1" "$generation" "${BASH_REMATCH[@]:4:3}")$'Succeeded\n'
}

# show CAUSE: waits until the status has the outcome of the run with this cause, and prints the objects that the role made
# and the conditions.
show() {
  k wait memcached "$name" --timeout 1m --for "jsonpath={.status.ansible.lastRun.cause}=$1" >/dev/null
  echo
  {
    printf 'OBJECT\tNAME\tSTATE\n'
    k get "${roles_made[@]}" --output go-template='{{range .items}}{{.kind}}{{"\t"}}{{.metadata.name}}{{"\t"}}{{
      if eq .kind "Deployment"}}{{or .status.availableReplicas 0}} of {{.spec.replicas}} available{{
      else if eq .kind "Service"}}{{.spec.clusterIP}}{{
      else if eq .kind "ConfigMap"}}{{len (or .data "")}} keys{{
      else}}{{.status.phase}}{{end}}{{"\n"}}{{end}}'
  } | align
  echo
  {
    printf 'CONDITION\tSTATUS\tREASON\tMESSAGE\n'
    k get memcached "$name" --output go-template='{{range .status.conditions}}{{.type}}{{"\t"}}{{.status}}{{"\t"}}{{.reason}}{{"\t"}}{{.message}}{{"\n"}}{{end}}'
  } | align
}

chapter 'Install the kind Memcached and start the operator'
installed=yes
k apply --filename "$definition" >/dev/null || { installed=''; exit 1; }
k wait --timeout 1m --for condition=Established --filename "$definition" >/dev/null
start

chapter 'Create a Memcached of 3: the role makes a Deployment of it'
k create --filename config/samples/cache_v1alpha1_memcached.yaml >/dev/null
follow created
show created

chapter 'Change the size to 2: one more run, and only what differs is changed'
k patch memcached "$name" --type merge --patch '{"spec": {"size": 2}}' >/dev/null
follow changed
show changed

chapter "Delete it: the finalizer's role runs, and then it is gone"
k delete memcached "$name" --wait=false >/dev/null
deleted=$(since 0)
follow deleted
k wait memcached "$name" --timeout 2m --for delete >/dev/null
printf '  the object is gone, %ss after its deletion\n' "$(awk "BEGIN { printf \"%.1f\", $(since "$deleted") / 100 }")"
# The garbage collector discovers new kinds every 30 seconds. Until then, it does not know our kind as an owner.
echo '  waiting for Kubernetes to collect what it owned (it looks for new kinds every 30 s)'
owned=$(k get "${roles_made[@]}" --output go-template='{{range .items}}{{if .metadata.ownerReferences}}{{.kind}}/{{.metadata.name}} {{end}}{{end}}')
# shellcheck disable=SC2086 # they are many
[ -z "$owned" ] || k wait --timeout 2m --for delete $owned >/dev/null
k get "${roles_made[@]}" --output go-template='{{range .items}}  left by the finalizer'\''s role: {{.kind}} {{.metadata.name}}{{"\n"}}{{end}}'

chapter 'What happened'
printf %s "$runs" | align
printf '\n  3 causes, 3 runs, nothing left behind. Try it yourself: `make cluster-up`, then `make run`;\n'
echo '  break roles/memcached on purpose and see which file and line the status names.'
