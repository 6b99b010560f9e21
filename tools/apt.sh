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

# apt_release RELEASE DIR has apt-get of this shell look at another release of Debian, as if nothing was installed, and
# keep what it fetches in DIR. The package lists and keys are the system's with the release's name exchanged.
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
