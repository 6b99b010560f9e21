#!/usr/bin/env bash
# Unpacks the newest line of Ansible that the tests use, beside the system's: ansible-core 2.22, ansible-runner 2.4 and
# kubernetes.core of Debian forky, with Python 3.14 and all libraries, because they need a newer C library than the
# system's. They go into DIR, and DIR/bin is to be put in front of the PATH. Nothing is installed.
#
#   tools/ansible/third-line.sh DIR        prints DIR/bin when ready; does nothing else if it is there already
set -euo pipefail
# shellcheck source=tools/apt.sh
. "$(dirname "$0")/../apt.sh"

dir=${1:?usage: third-line.sh DIR}
release=forky line=2.22
if [ -x "$dir/bin/ansible-runner" ]; then
  echo "$dir/bin"
  exit 0
fi
if ! command -v apt-get >/dev/null || [ ! -d /etc/apt ] || [ "$(uname -m)" != x86_64 ]; then
  echo "third-line.sh: this is no Debian on amd64; install ansible-core $line, ansible-runner and kubernetes.core with pip" \
    "in a virtual environment and make $dir/bin a link to its bin" >&2
  exit 1
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
echo "third-line.sh: fetching Ansible of $release, with its Python: 65 MB" >&2
apt_release "$release" "$work"
version=$(apt-cache show --no-all-versions ansible-core | sed -n 's/^Version: //p')
if [ "${version#"$line".}" = "$version" ]; then
  echo "third-line.sh: Debian $release has ansible-core $version now, and no $line" >&2
  exit 1
fi
(cd "$work" &&
  apt-get -q -y install --download-only --no-install-recommends \
    ansible-core python3-ansible-runner python3-kubernetes python3-jsonpatch patchelf &&
  apt-get -q download ansible) >"$work/download.log" 2>&1 || { cat "$work/download.log" >&2; exit 1; }

# unpack FILE [PATH] unpacks a package, or only its files below the path.
unpack() {
  dpkg-deb --fsys-tarfile "$1" |
    tar -x -C "$dir.new" --exclude=./usr/share/doc --exclude=./usr/share/man --exclude=./usr/share/locale "${@:2}"
}
rm -rf "$dir.new" "$dir"
mkdir -p "$dir.new/bin"
for deb in "$work"/cache/archives/*.deb; do
  unpack "$deb"
done
unpack "$work"/ansible_*.deb ./usr/lib/python3/dist-packages/ansible_collections/kubernetes

# The interpreter loads its libraries from DIR; the programs that it starts use the system's.
mv "$dir.new" "$dir"
dir=$(cd "$dir" && pwd)
libraries=$dir/usr/lib/x86_64-linux-gnu
loader=$dir/usr/lib64/ld-linux-x86-64.so.2
python=$(cd "$dir/usr/bin" && readlink python3)
"$loader" --library-path "$libraries" "$dir/usr/bin/patchelf" --no-sort --set-interpreter "$loader" \
  --force-rpath --set-rpath "$libraries" "$dir/usr/bin/$python"
ln -s "../usr/bin/$python" "$dir/bin/python3"
"$dir/bin/python3" -m compileall -q "$dir/usr/lib/python3/dist-packages" || true # some files have the syntax of another Python
for name in ansible-playbook ansible-galaxy ansible-inventory ansible-vault ansible-runner; do
  sed "1s|.*|#!$dir/bin/python3|" "$dir/usr/bin/$name" >"$dir/bin/$name"
  chmod 0755 "$dir/bin/$name"
done
"$dir/bin/ansible-playbook" --version >/dev/null
echo "$dir/bin"
