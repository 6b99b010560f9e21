# shellcheck shell=bash
# Functions for Debian's packages, sourced by the install scripts.

# apt_usable says whether packages can be installed: only as root, and with apt-get.
apt_usable() {
  [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null
}

# apt_install PACKAGE... installs packages. It fetches the package lists first if there are none, or if the installation fails.
apt_install() {
  export DEBIAN_FRONTEND=noninteractive
  if ! ls /var/lib/apt/lists/*_Packages* >/dev/null 2>&1; then
    echo "apt-get update"
    apt-get update -qq
  fi
  echo "apt-get install $*"
  apt-get install -y -qq --no-install-recommends "$@" >/dev/null ||
    { apt-get update -qq && apt-get install -y -qq --no-install-recommends "$@" >/dev/null; }
}

# apt_release RELEASE DIR makes apt-get in this shell use another release of Debian, as if nothing was installed, and keep
# its downloads in DIR. The package sources and keys are the system's, with the name of the release replaced.
apt_release() {
  mkdir -p "$2/lists/partial" "$2/cache/archives/partial" "$2/sources"
  : >"$2/status"
  for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources; do
    if [ -s "$file" ] && grep -q debian "$file"; then
      sed -E "s/\b(bookworm|bullseye|trixie|forky|sid)/$1/g" "$file" >"$2/sources/$(basename "$file")"
    fi
  done
  cat >"$2/apt.conf" <<CONF
Dir::Etc::sourcelist "$2/sources/sources.list";
Dir::Etc::sourceparts "$2/sources";
Dir::State::lists "$2/lists";
Dir::State::status "$2/status";
Dir::Cache "$2/cache";
APT::Sandbox::User "root";
CONF
  export APT_CONFIG="$2/apt.conf"
  apt-get -q update >"$2/update.log" 2>&1 || { cat "$2/update.log" >&2; return 1; }
}
