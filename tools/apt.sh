# shellcheck shell=bash
# Sourced by the install scripts: what they share about Debian's packages.

# apt_usable says whether packages can be installed: as root where there is apt.
apt_usable() {
  [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null
}

# apt_install PACKAGE... installs packages, with the package lists fetched first where there are none or they are stale.
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
