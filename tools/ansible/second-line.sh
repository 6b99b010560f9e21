#!/bin/sh
# Unpacks the second line of Ansible that the tests use, beside the system's: ansible-core 2.19 and ansible-runner 2.4
# from Debian trixie. They go into a virtual environment, whose bin/ is to be put in front of the PATH.
#
#   tools/ansible/second-line.sh DIR        prints DIR/bin when ready; does nothing else if it is there already
#
# Both packages are pure Python and run on the system's Python 3.11, with the libraries that were installed with the
# system's own Ansible. Nothing is installed.
set -eu
# shellcheck source=tools/apt.sh
. "$(dirname "$0")/../apt.sh"

dir=$1
release=trixie
if [ -f "$dir/pyvenv.cfg" ] && [ -x "$dir/bin/ansible-runner" ]; then
	echo "$dir/bin"
	exit 0
fi
if ! command -v apt-get >/dev/null || [ ! -d /etc/apt ]; then
	echo "second-line.sh: this system has no apt-get; install ansible-core 2.19 and ansible-runner 2.4 with pip in a" \
		"virtual environment and make $dir/bin a link to its bin" >&2
	exit 1
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 0755 "$work"
mkdir "$work/root"
echo "second-line.sh: fetching ansible-core and ansible-runner of $release" >&2
apt_release "$release" "$work"
(cd "$work" && apt-get -q download ansible-core python3-ansible-runner >"$work/download.log" 2>&1) ||
	{ cat "$work/download.log" >&2; exit 1; }
for deb in "$work"/*.deb; do
	dpkg-deb -x "$deb" "$work/root"
done

# A virtual environment that also sees the system's packages, and scripts that use its interpreter.
rm -rf "$dir"
python=$(/usr/bin/python3 -c 'import sys; print("python%d.%d" % sys.version_info[:2])')
mkdir -p "$dir/bin" "$dir/lib/$python"
mv "$work/root/usr/lib/python3/dist-packages" "$dir/lib/$python/site-packages"
printf 'home = /usr/bin\ninclude-system-site-packages = true\n' >"$dir/pyvenv.cfg"
ln -s /usr/bin/python3 "$dir/bin/python3"
absolute=$(cd "$dir" && pwd)
for name in ansible-playbook ansible-galaxy ansible-inventory ansible-vault ansible-runner; do
	sed "1s|.*|#!$absolute/bin/python3|" "$work/root/usr/bin/$name" >"$dir/bin/$name.new"
	chmod 0755 "$dir/bin/$name.new"
	mv "$dir/bin/$name.new" "$dir/bin/$name"
done
"$dir/bin/ansible-playbook" --version >/dev/null
echo "$dir/bin"
