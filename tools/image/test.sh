#!/usr/bin/env bash
# Runs the tests of packages in the root file system of the image for operators, with the image's Python and Ansible and
# this machine's control plane. Needs root.
#
#   tools/image/test.sh PACKAGE... -- [flags of go test]
#
# `make test-image` builds the image first.
set -euo pipefail
cd "$(dirname "$0")/../.."

if [ "${IN_NAMESPACE:-}" = "" ]; then # the mounts disappear with the namespace, however this script ends
  IN_NAMESPACE=1 exec unshare --mount --propagation private "$0" "$@"
fi
packages=()
while [ "$1" != -- ]; do
  packages+=("$1")
  shift
done
shift
cache=${XDG_CACHE_HOME:-$HOME/.cache}/rolewright/image
buildah() { command buildah --root "$cache/storage" --runroot "$cache/run" "$@"; }
container=$(buildah from --pull-never rolewright/operator:e2e)
work=$(mktemp -d)
trap 'rm -rf "$work"; buildah umount "$container" >/dev/null; buildah rm "$container" >/dev/null' EXIT
root=$(buildah mount "$container")
goroot=$(go env GOROOT)
for dir in "$PWD" "$goroot" "$(go env GOMODCACHE)" "$(go env GOCACHE)" /tmp /dev /proc /sys; do
  mkdir -p "$root$dir"
  mount --rbind "$dir" "$root$dir"
done
export KUBECONFIG=${KUBECONFIG:?run it below controlplane exec}
for package in "${packages[@]}"; do
  binary=$work/test
  CGO_ENABLED=0 go test -c -o "$binary" "./$package"
  echo "in the image: $package"
  chroot "$root" /usr/bin/env HOME=/root LANG=C.UTF-8 GOMODCACHE="$(go env GOMODCACHE)" GOCACHE="$(go env GOCACHE)" \
    PATH="$PWD/bin/tools:$goroot/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin" \
    sh -c 'cd "$1" && shift && exec "$@"' sh "$PWD/$package" "$binary" "$@"
done
