#!/usr/bin/env bash
# Builds images as root, without a daemon and without a registry: it makes the base image from Debian's packages, and the
# Go image from the installed toolchain. It writes the images to DIR, as archives for `docker load`, `podman load` and
# `ctr images import`.
#
#   tools/image/build.sh DIR NAME:TAG[,TAG] [build arguments...]
#
# The archive is named after NAME: rolewright/operator:dev becomes DIR/rolewright-operator.tar. The arguments are those of
# `buildah build`, such as --target operator . Unchanged steps come from the cache in ~/.cache/rolewright/image, which can
# be removed. Each week, the base image and everything on top of it are built again; each version of Go gets a new Go image.
set -euo pipefail

dir=$1 tag=${2%%,*} more=
case $2 in *,*) more=${tag%:*}:${2#*,} ;; esac
shift 2
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
export BUILDAH_ISOLATION=${BUILDAH_ISOLATION:-chroot}
release=trixie
week=$(date -u +%G-w%V)
# The time of all files in an image, so that the same files make the same image.
export SOURCE_DATE_EPOCH=1767225600

cache=${XDG_CACHE_HOME:-$HOME/.cache}/rolewright/image
mkdir -p "$cache"

buildah() { command buildah --root "$cache/storage" --runroot "$cache/run" "$@"; }
have() { buildah inspect --type image "$1" >/dev/null 2>&1; }

# Leaves out the same files as Debian's slim images.
make_debian() {
  local root="$cache/root" container
  echo "image: making debian:$release-slim of the packages of $week"
  rm -rf "$root"
  debootstrap --variant=minbase "$release" "$root" >"$dir/debootstrap.log" 2>&1 || { tail -n 20 "$dir/debootstrap.log" >&2; exit 1; }
  printf 'path-exclude /usr/share/%s/*\n' doc groff info linda lintian locale man >"$root/etc/dpkg/dpkg.cfg.d/docker"
  echo 'path-include /usr/share/doc/*/copyright' >>"$root/etc/dpkg/dpkg.cfg.d/docker"
  find "$root/usr/share/doc" -mindepth 1 ! -type d ! -name copyright -delete
  find "$root/usr/share/doc" -mindepth 1 -type d -empty -delete
  rm -rf "$root"/usr/share/{groff,info,linda,lintian,locale,man}/* "$root"/var/lib/apt/lists/* "$root"/var/cache/apt/* \
    "$root"/var/cache/ldconfig/* "$root"/var/log/{apt,*.log} "$root"/etc/{hostname,resolv.conf} "$root"/dev/*
  container=$(buildah from scratch)
  buildah add -q "$container" "$root" / >/dev/null
  # The label makes this a different image even if its packages are the same, so that buildah does not reuse cached steps.
  buildah config --cmd bash --label "dev.rolewright.packages=$week" "$container"
  buildah commit -q --rm --timestamp "$SOURCE_DATE_EPOCH" "$container" "debian:$release-slim-$week" >/dev/null
  rm -rf "$root"
}

make_golang() {
  local goroot container
  goroot=$(go env GOROOT)
  echo "image: making golang:1.26 of $toolchain"
  container=$(buildah from "debian:$release-slim")
  buildah add -q "$container" "$goroot" /usr/local/go >/dev/null
  buildah add -q "$container" /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt >/dev/null
  buildah config --env PATH=/usr/local/go/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    --env GOPATH=/go --env GOTOOLCHAIN=local "$container"
  buildah commit -q --rm "$container" "golang:$toolchain" >/dev/null
}

toolchain=$(go env GOVERSION)
have "debian:$release-slim-$week" || make_debian
buildah tag "debian:$release-slim-$week" "debian:$release-slim"
have "golang:$toolchain" || make_golang
buildah tag "golang:$toolchain" golang:1.26

# The builds mount this machine's Go caches, so that they do not download and compile everything again.
modules=$(go env GOMODCACHE) compiled=$(go env GOCACHE)
mkdir -p "$modules" "$compiled"
archive="$dir/$(echo "${tag%:*}" | tr / -).tar"
buildah build -q --pull=never --layers --timestamp "$SOURCE_DATE_EPOCH" --tag "$tag" \
  --volume "$modules:/go/pkg/mod" --volume "$compiled:/root/.cache/go-build" "$@" >"$dir/build.log" 2>&1 ||
  { tail -n 40 "$dir/build.log" >&2; exit 1; }
rm -f "$archive"
buildah push -q "$tag" "docker-archive:$archive:$tag"
if [ -n "$more" ]; then # buildah writes an archive with one name; the second one is added here
  buildah tag "$tag" "$more"
  parts=$(mktemp -d "$dir/parts.XXXXXX")
  tar -xf "$archive" -C "$parts"
  sed -i 's/"RepoTags":\["\([^"]*\):[^":]*"/&,"\1:'"${more##*:}"'"/' "$parts/manifest.json"
  (cd "$parts" && tar -cf "$archive" --owner=0 --group=0 --sort=name -- *)
  rm -r "$parts"
fi
echo "image: $tag${more:+, $more}, $(du -m "$archive" | cut -f 1) MB: $archive"
