#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
#   ./run.sh                                          the quickstart: a corpus becomes a vocabulary, shards and statistics
#   ./run.sh test [--quick] [pytest options]          linters, type checker, the whole test suite; --quick: what to run before a
#                                                      commit, without large data, whole products and installations
#   ./run.sh bench [NAME] [options]                    beam, count, encode, insight, load, pipeline, plan, small, text, train:
#                                                      benchmarks; hostile, kills, scale: what breaks other programs;
#                                                      first-run: the quickstart with nothing compiled; compare: the numbers of
#                                                      `tokenmill compare` against those of TokLens and TokEval;
#                                                      commits: this tree against another commit
#   ./run.sh docs [--check]                            the reference from the code, the site into build/site;
#                                                      --check: everything that the documentation shows, run
#   ./run.sh COMMAND ...                              any tokenmill command: run, count, train, tokenize, inspect, verify
#
# The first run makes .venv (docs: .venv-docs) beside this file and installs what locks/ names; later runs start at once
# and use no network.
# PYTHON=/path/to/python3.12 ./run.sh chooses the interpreter.
#
set -euo pipefail
unset PYTHONPATH PYTHONHOME CDPATH # the packages of another project must not shadow ours

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
venv=$root/.venv
log=$root/build/setup.log

say() { printf 'run.sh: %s\n' "$*" >&2; }
fail() {
  say "$@"
  exit 1
}

# The version of interpreter $1 as "3.12", or nothing if it does not run.
version_of() { "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null || true; }

# What is wrong with interpreter $1, for a person; nothing if .venv can be made with it.
fault_of() {
  local version
  version=$(version_of "$1")
  case $version in
    3.11 | 3.12 | 3.13) ;;
    "") echo "does not run" && return ;;
    *) echo "is Python $version" && return ;;
  esac
  "$1" -c 'import sys; sys.exit(sys.implementation.name != "cpython")' || { echo "is not CPython" && return; }
  "$1" -c 'import venv, ensurepip' 2>/dev/null ||
    echo "is Python $version without venv and ensurepip (Debian, Ubuntu: apt install python$version-venv)"
}

# Sets `python` to an interpreter that .venv can be made with, or says which were found and what each lacks.
find_python() {
  local candidate path fault seen=""
  for candidate in ${PYTHON:+"$PYTHON"} python3.13 python3.12 python3.11 python3 python; do
    path=$(type -P -- "$candidate") || { [[ $candidate == "${PYTHON:-}" ]] && path=$candidate || continue; }
    fault=$(fault_of "$path")
    if [[ -z $fault ]]; then
      python=$path
      return
    fi
    seen+="  $path $fault"$'\n'
    [[ $candidate != "${PYTHON:-}" ]] || break # who names an interpreter wants that one
  done
  say "needs CPython 3.11, 3.12 or 3.13 with its venv module. Found:"
  [[ -n $seen ]] || seen="  no Python at all"$'\n'
  printf '%s' "$seen" >&2
  fail "install one from your package manager or python.org, or name one: PYTHON=/path/to/python3.12 $0"
}

# What an installation of level $1 depends on; it is current while its stamp holds exactly this.
wanted() {
  printf '%s\n' "$root" "$(version_of "$venv/bin/python")"
  cat -- "$root/pyproject.toml" "$root/locks/$1.lock"
}

# Whether the environment holds level $1 or one that includes it (runtime < test < bench).
is_ready() {
  [[ -x $venv/bin/python ]] || return 1
  [[ -z ${PYTHON:-} || $(version_of "$PYTHON") == "$(version_of "$venv/bin/python")" ]] || return 1
  local level levels="runtime test bench"
  [[ $1 != docs ]] || levels=docs # in an environment of its own
  for level in ${levels#"${levels%%"$1"*}"}; do
    if [[ -f $venv/.installed-$level ]] && wanted "$level" | cmp -s - "$venv/.installed-$level"; then return 0; fi
  done
  return 1
}

# Lets one run at a time change .venv. Where there is no flock, a directory is the lock.
acquire_lock() {
  mkdir -p -- "$root/build"
  if type -P flock >/dev/null; then
    exec 9>"$root/build/setup.lock"
    flock -n 9 || { say "waiting for another run that is setting up .venv" && flock 9; }
    return
  fi
  local told="" holder lock=$root/build/setup.lock.d
  until mkdir -- "$lock" 2>/dev/null; do
    holder=$(cat -- "$lock/pid" 2>/dev/null || true)
    if [[ -n $holder ]] && ! kill -0 "$holder" 2>/dev/null; then
      fail "a run that was killed left its lock behind; remove $lock and start again"
    fi
    [[ -n $told ]] || say "waiting for another run that is setting up .venv"
    told=yes
    sleep 1
  done
  trap 'rm -rf -- "$root/build/setup.lock.d"' EXIT
  echo $$ >"$lock/pid"
}

release_lock() {
  if [[ -d $root/build/setup.lock.d ]]; then
    trap - EXIT
    rm -rf -- "$root/build/setup.lock.d"
  else
    exec 9>&-
  fi
}

# Runs a step of the installation; its output goes to the log and is shown only if it fails.
logged() {
  if ! "$@" >>"$log" 2>&1; then
    tail -n 20 -- "$log" >&2
    fail "could not set up .venv; the full log is $log. Most often the network or a full disk is to blame: start again."
  fi
}

# Brings .venv to level $1.
set_up() {
  is_ready "$1" && return
  acquire_lock
  if ! is_ready "$1"; then
    install "$1"
  fi
  release_lock
}

install() {
  local level=$1 python fault="" started=$SECONDS
  : >"$log"
  # A .venv is kept only if it is sound: it runs, was made here, is the Python asked for, and no installation was cut short in it.
  if [[ -e $venv ]]; then
    [[ ! -e $venv/.installing ]] || fault="an installation was cut short in it"
    [[ -z $(fault_of "$venv/bin/python") ]] || fault="its Python $(fault_of "$venv/bin/python")"
    [[ -z ${PYTHON:-} || $(version_of "$PYTHON") == "$(version_of "$venv/bin/python")" ]] || fault="PYTHON asks for another version"
    [[ ! -e $venv/.root || $(cat -- "$venv/.root") == "$root" ]] || fault="it was made in another place"
  fi
  if [[ ! -e $venv || -n $fault ]]; then
    find_python
    [[ -z $fault ]] || say "making ${venv##*/} anew: $fault"
    logged "$python" -m venv --clear -- "$venv"
  fi
  echo "$root" >"$venv/.root"
  : >"$venv/.installing"
  say "installing locks/$level.lock into ${venv##*/} (once; a minute or two and some hundred MB)"
  logged env PIP_USER=0 "$venv/bin/python" -m pip install --disable-pip-version-check --no-input \
    --require-hashes --only-binary :all: -r "$root/locks/$level.lock"
  logged env PIP_USER=0 "$venv/bin/python" -m pip install --disable-pip-version-check --no-input \
    --no-index --no-deps --no-build-isolation -e "$root"
  wanted "$level" >"$venv/.installed-$level.part"
  mv -- "$venv/.installed-$level.part" "$venv/.installed-$level"
  rm -- "$venv/.installing"
  say "ready after $((SECONDS - started)) s"
}

step() { printf '\n== %s\n' "$*"; }

quickstart() {
  cd -- "$root"
  step "1 of 4: a corpus of what every Python carries, and a multilingual sample -> build/quickstart/corpus"
  # The first time one core makes the corpus, and the others compile what the next step runs.
  local warm=""
  if [[ ! -e $venv/.warmed ]]; then
    "$venv/bin/tokenmill" warm configs/quickstart.yaml >/dev/null &
    warm=$!
    trap 'kill "$warm" 2>/dev/null || true' EXIT
  fi
  "$venv/bin/python" -m pipeline.quickstart build/quickstart/corpus
  if [[ -n $warm ]]; then
    # The job compiles what is missing.
    if wait "$warm"; then : >"$venv/.warmed"; fi
    trap - EXIT
  fi
  step "2 of 4: count its words, train a vocabulary, tokenize -> build/quickstart/out"
  "$venv/bin/tokenmill" run configs/quickstart.yaml --overwrite
  step "3 of 4: read it all back and prove that the books balance"
  "$venv/bin/tokenmill" verify configs/quickstart.yaml
  step "4 of 4: two rows as text; an unknown character costs one [UNK], not the whole word"
  "$venv/bin/tokenmill" inspect configs/quickstart.yaml --start 4 --rows 2
}

run_tests() {
  cd -- "$root"
  local quick=()
  if [[ ${1:-} == --quick ]]; then
    shift
    quick=(--quick)
    export TOKENMILL_EXAMPLES=${TOKENMILL_EXAMPLES:-10}
  fi
  # Compiled kernels are named by their sources, so clones of one machine share them. What nobody used for two weeks goes.
  export TOKENMILL_CACHE_DIR=${TOKENMILL_CACHE_DIR:-${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/tokenmill/tests}
  mkdir -p -- "$TOKENMILL_CACHE_DIR"
  find "$TOKENMILL_CACHE_DIR" -type f -atime +14 -delete
  step "ruff"
  "$venv/bin/python" -m ruff check .
  "$venv/bin/python" -m ruff format --check .
  step "mypy"
  "$venv/bin/python" -m mypy
  step "pytest"
  exec "$venv/bin/python" -m pytest -n auto --maxprocesses 4 --dist worksteal --durations=20 --durations-min=5 \
    ${quick[@]+"${quick[@]}"} "$@"
}

run_benchmarks() {
  cd -- "$root"
  case ${1:-all} in
    beam | commits | compare | count | encode | first-run | hostile | insight | kills | load | pipeline | plan | scale | small | text | train)
      exec "$venv/bin/python" -m "benchmarks.${1//-/_}" "${@:2}"
      ;;
    all)
      local name
      for name in beam count encode insight load pipeline plan small text train; do
        step "$name"
        "$venv/bin/python" -m "benchmarks.$name" "${@:2}"
      done
      ;;
    *) fail "unknown benchmark '$1'; there are beam, compare, count, encode, first-run, insight, load, pipeline, plan, small, text, train; commits, hostile, kills, scale" ;;
  esac
}

build_docs() {
  cd -- "$root"
  [[ $# -eq 0 || $* == --check ]] || fail "docs takes --check or nothing, got: $*"
  step "the reference -> docs/reference"
  "$venv/bin/python" -m tools.docs write
  step "the site -> build/site"
  "$venv/bin/python" -m tools.docs stage
  NO_MKDOCS_2_WARNING=1 "$venv/bin/python" -m mkdocs build --strict --quiet --config-file tools/docs/mkdocs.yml
  if [[ $# -gt 0 ]]; then
    step "everything that the documentation shows, run"
    exec "$venv/bin/python" -m tools.docs run
  fi
}

case ${1:-} in
  "")
    set_up runtime
    quickstart
    ;;
  -h | --help | help)
    sed -n '/^#   /s/^#   //p' "${BASH_SOURCE[0]}"
    ;;
  test)
    set_up test
    run_tests "${@:2}"
    ;;
  docs)
    venv=$root/.venv-docs
    set_up docs
    build_docs "${@:2}"
    ;;
  bench)
    set_up bench
    run_benchmarks "${@:2}"
    ;;
  *)
    set_up runtime
    exec "$venv/bin/tokenmill" "$@"
    ;;
esac
