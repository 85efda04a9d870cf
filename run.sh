#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
#   ./run.sh                                          the quickstart: a corpus becomes a vocabulary, shards and statistics
#   ./run.sh test [--quick | --all] [pytest options]  linters, types and tests, ten minutes; --quick: 90 s; --all: everything
#   ./run.sh bench [NAME] [options]                   benchmarks, one or several; benchmarks/README.md describes them
#   ./run.sh docs [--check]                           the reference from the code, and the site; --check: run all that it shows
#   ./run.sh COMMAND ...                              any tokenmill command: run, count, train, tokenize, inspect, verify
#
# The first run makes .venv (docs: .venv-docs) beside this file and installs what locks/ names; later runs start at once,
# and neither use the network nor write here. PYTHON=/path/to/python3.12 ./run.sh chooses the interpreter.
set -euo pipefail
unset PYTHONPATH PYTHONHOME CDPATH # the packages of another project must not shadow ours
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
log=$root/build/setup.log

say() { printf 'run.sh: %s\n' "$*" >&2; }
fail() { say "$@" && exit 1; }
# The version of interpreter $1 as "3.12", or nothing if it does not run.
version_of() { "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null || true; }
is_other_python() { [[ -n ${PYTHON:-} && $(version_of "$PYTHON") != "$(version_of "$venv/bin/python")" ]]; }

# What is wrong with interpreter $1, for a person; nothing if an environment can be made with it.
fault_of() {
  local version && version=$(version_of "$1")
  [[ -n $version ]] || { echo "does not run" && return; }
  [[ $version == 3.1[123] ]] || { echo "is Python $version" && return; }
  "$1" -c 'import sys; sys.exit(sys.implementation.name != "cpython")' || { echo "is not CPython" && return; }
  "$1" -c 'import venv, ensurepip' 2>/dev/null ||
    echo "is Python $version without venv and ensurepip (Debian, Ubuntu: apt install python$version-venv)"
}

# Sets `python` to an interpreter that an environment can be made with, or says which were found and what each lacks.
find_python() {
  local candidate fault seen="" candidates=(python3.13 python3.12 python3.11 python3 python)
  [[ -z ${PYTHON:-} ]] || candidates=("$PYTHON") # who names an interpreter wants that one
  for candidate in "${candidates[@]}"; do
    python=$(type -P -- "$candidate") || { [[ -n ${PYTHON:-} ]] && python=$PYTHON; } || continue
    fault=$(fault_of "$python")
    [[ -n $fault ]] || return 0
    seen+="  $python $fault"$'\n'
  done
  say "needs CPython 3.11, 3.12 or 3.13 with its venv module. Found:"$'\n'"${seen:-  no Python at all}"
  fail "install one from your package manager or python.org, or name one: PYTHON=/path/to/python3.12 $0"
}

# What an installation of level $1 depends on; it is current while its stamp holds exactly this.
wanted() { printf '%s\n' "$root" "$(version_of "$venv/bin/python")" "$(<"$root/pyproject.toml")" "$(<"$root/locks/$1.lock")"; }

# Whether the environment holds level $1 or one that includes it (runtime < test < bench).
is_ready() {
  [[ -x $venv/bin/python ]] && ! is_other_python || return 1
  local level levels="runtime test bench docs" # docs is alone in an environment of its own
  for level in ${levels#"${levels%%"$1"*}"}; do
    [[ ! -r $venv/.installed-$level || $(<"$venv/.installed-$level") != "$(wanted "$level")" ]] || return 0
  done
  return 1
}

# Lets one run at a time change the environment, until this process ends. Where there is no flock, a directory is the lock.
lock() {
  local lock=$root/build/setup.lock waiting="waiting for another run that is setting up .venv"
  if type -P flock >/dev/null; then
    exec 9>"$lock" && { flock -n 9 || { say "$waiting" && flock 9; }; } && return
  fi
  until mkdir -- "$lock.d" 2>/dev/null; do
    kill -0 "$(cat -- "$lock.d/pid" 2>/dev/null || echo $$)" 2>/dev/null ||
      fail "a run that was killed left its lock behind; remove $lock.d and start again"
    [[ -z $waiting ]] || say "$waiting"
    waiting="" && sleep 1
  done
  trap 'rm -rf -- "$root/build/setup.lock.d"' EXIT
  echo $$ >"$lock.d/pid"
}

# Runs a step of the installation; its output goes to the log and is shown only if it fails.
logged() {
  "$@" >>"$log" 2>&1 || { tail -n 20 -- "$log" >&2 && fail "could not set up .venv; the full log is $log." \
    "Most often the network or a full disk is to blame: start again."; }
}

# Installs with `uv`, else with `pip`, which takes five times as long, and does what uv cannot: its own settings may name
# the index.
install() {
  [[ ! -x $uv ]] || ! "$uv" pip install --python "$venv/bin/python" --compile-bytecode "$@" >>"$log" 2>&1 || return 0
  logged "${pip[@]}" "$@"
}

# Brings the environment to level $1; in a subshell, with whose end the lock is free.
set_up() (
  ! is_ready "$1" || exit 0
  { mkdir -p -- "$root/build" && : >>"$log"; } 2>/dev/null || fail "$venv is not ready for this user" \
    "(its Python $(fault_of "$venv/bin/python")), who may not write to $root: let its owner start this, or make a clone"
  lock
  ! is_ready "$1" || exit 0
  pip=(env PIP_USER=0 "$venv/bin/python" -m pip install --disable-pip-version-check --no-input)
  fault="" && : >"$log"
  # An environment is kept only if it is sound: it runs, was made here, is the Python asked for, and is complete.
  if [[ -e $venv ]]; then
    [[ -z $(fault_of "$venv/bin/python") ]] || fault="its Python $(fault_of "$venv/bin/python")"
    [[ ! -e $venv/.installing ]] || fault="an installation was cut short in it"
    ! is_other_python || fault="PYTHON asks for another version"
    [[ ! -e $venv/.root || $(<"$venv/.root") == "$root" ]] || fault="it was made in another place"
  fi
  if [[ ! -e $venv || -n $fault ]]; then
    find_python
    [[ -z $fault ]] || say "making ${venv##*/} anew: $fault"
    logged "$python" -m venv --clear -- "$venv"
  fi
  echo "$root" >"$venv/.root" && : >"$venv/.installing"
  say "installing locks/$1.lock into ${venv##*/} (once; some hundred MB)"
  uv=$(type -P uv) || uv=$root/build/uv/bin/uv
  [[ -x $uv ]] ||
    "${pip[@]}" --target "$root/build/uv" --require-hashes --only-binary :all: -r "$root/locks/uv.lock" >>"$log" 2>&1 || true
  install --require-hashes --only-binary :all: -r "$root/locks/$1.lock"
  install --no-index --no-deps --no-build-isolation -e "$root"
  # Where PYTHONDONTWRITEBYTECODE is set, as in many containers, each process would compile all of these again.
  "$venv/bin/python" -m compileall -q -j 0 "$root"/{tokenizer,pipeline,tokenmill,tools} >>"$log" 2>&1 || true
  wanted "$1" >"$venv/.installed-$1.part"
  mv -- "$venv/.installed-$1.part" "$venv/.installed-$1" && rm -- "$venv/.installing"
  say "ready after $SECONDS s"
)

command=${1:-quickstart} level=runtime venv=$root/.venv
case $command in
  -h | --help | help) sed -n '/^#   /s/^#   //p' "${BASH_SOURCE[0]}" && exit ;;
  test | bench) level=$command ;;
  docs) level=docs venv=$root/.venv-docs ;;
esac
set_up "$level"
[[ $level != runtime || $# -eq 0 ]] || exec "$venv/bin/tokenmill" "$@"
cd -- "$root" && exec "$venv/bin/python" -m tools "$command" "${@:2}"
