#!/usr/bin/env bash
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
#
# Makes .venv in the repository, with the versions of scripts/requirements.lock and this package (editable).
# Does nothing when it is up to date; a .venv that was not finished is made again.
#
#   VECO_PYTHON=/path/to/python bash scripts/setup.sh     builds it from that interpreter (3.11 to 3.14)
#   VECO_VERSIONS=lowest bash scripts/setup.sh            with the lowest versions that setup.py allows
#   VECO_VERSIONS=newest bash scripts/setup.sh            with the newest versions of all packages in setup.py
#   VECO_SKIP_SETUP=1                                     leaves .venv as it is, also in what calls this script
#
# If Python or something that it needs is missing, and uv is on the PATH, uv brings Python 3.12.
set -euo pipefail

unset CDPATH  # with it, cd also prints where it goes
repository="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
lock="$repository/scripts/requirements.lock"
mend="$repository/veco_fairseq/commands/mend_fairseq.py"
venv="$repository/.venv"
stamp="$venv/veco-setup.stamp"        # written last: what .venv holds
unfinished="$venv/veco-setup.unfinished"  # there while .venv is being made or changed
log="$venv/veco-setup.log"

say() { echo "setup: $*"; }
fail() { echo "setup.sh: error: $*" >&2; exit 1; }

if [[ "${1:-}" == -h || "${1:-}" == --help ]]; then
    sed -n '/^# Makes/,/^set /{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"
    exit
fi
(($# == 0)) || fail "$1: takes no arguments; see --help"
if [[ -n "${VECO_SKIP_SETUP:-}" ]]; then exit 0; fi

case "${VECO_VERSIONS:=pinned}" in
pinned | lowest | newest) ;;
*) fail "VECO_VERSIONS=$VECO_VERSIONS: give pinned, lowest or newest" ;;
esac

# probe PYTHON: prints "VERSION VENV HEADERS PREFIX", such as "3.12 venv headers /usr"; fails if it does not run.
probe() {
    "$1" -c '
import importlib.util, os, sys, sysconfig
venv = all(importlib.util.find_spec(name) for name in ("venv", "ensurepip"))
headers = os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h"))
version = "%d.%d" % sys.version_info[:2]
print(version, "venv" if venv else "-", "headers" if headers else "-", sys.base_prefix)' 2>/dev/null
}

# identity FACTS: the version and prefix, by which two interpreters are the same
identity() { local version venv headers prefix; read -r version venv headers prefix <<<"$1"; echo "$version $prefix"; }

supported() { [[ "$1" =~ ^3\.1[1234]\  ]]; }

# The interpreter: the user's, else the one .venv was made with, else the first supported one; empty if there is none.
# 3.12 comes first because there is a wheel of fairseq-fixed for it, so that nothing has to be compiled.
choose_python() {
    if [[ -n "${VECO_PYTHON:-}" ]]; then
        python="$VECO_PYTHON"
        facts="$(probe "$python")" || fail "VECO_PYTHON=$python does not run: give the path of a Python 3.11 to 3.14"
        supported "$facts" || fail "VECO_PYTHON=$python is Python ${facts%% *}: fairseq needs 3.11 to 3.14"
        return
    fi
    for python in "$venv/bin/python" python3.12 python3.11 python3.13 python3.14 python3; do
        if facts="$(probe "$python")" && supported "$facts"; then return; fi
    done
    python="" facts=""
}

# fairseq-fixed is compiled unless there is a wheel of it: on the index for 3.12 on Linux, or in pip's cache.
compiles() {
    local version="${facts%% *}" each
    if [[ "$version" == 3.12 && "$(uname -sm)" == "Linux x86_64" ]]; then return 1; fi
    if "$venv/bin/python" -m pip show fairseq-fixed >/dev/null 2>&1; then return 1; fi
    for each in "$venv/bin/python" "$python"; do
        if "$each" -m pip cache list fairseq_fixed 2>/dev/null | grep -q -- "-cp${version/./}-"; then return 1; fi
    done
}

# lack WHAT DEBIANS_PACKAGE FEDORAS_PACKAGE: notes one more thing that is missing
lack() { missing+="${missing:+, }$1" debian+=" $2" fedora+=" $3"; }

# Sees to all that making a .venv takes. What is missing uv brings, as a Python 3.12; without uv one line names it all.
complete_python() {
    local missing="" debian="" fedora="" version="${facts%% *}" compiler found="" command words
    if [[ -z "$python" ]]; then
        lack "a Python from 3.11 to 3.14" "g++ python3-dev python3-venv" "gcc-c++ python3-devel"
    else
        if compiles; then
            for compiler in ${CXX:+"$CXX"} c++ g++ clang++; do
                if command -v "${compiler%% *}" >/dev/null; then found=1; fi
            done
            [[ -n "$found" ]] || lack "a C++ compiler" g++ gcc-c++
            [[ "$facts" == *" headers "* ]] || lack "the headers of Python $version" "python$version-dev" python3-devel
        fi
        [[ -d "$venv" || "$facts" == *" venv "* ]] ||
            lack "the venv module of Python $version" "python$version-venv" python3-libs
    fi
    if [[ -z "$missing" ]]; then return; fi
    command="Debian, Ubuntu: apt-get install$debian; Fedora: dnf install$fedora"
    if [[ -n "${VECO_PYTHON:-}${brought:-}" ]] || ! command -v uv >/dev/null; then
        fail "missing: $missing: install it ($command), or name another Python with VECO_PYTHON=/path/to/python," \
            "or install uv, which brings a Python 3.12 that needs nothing else"
    fi
    say "missing: $missing; uv brings a Python 3.12 that needs nothing else (a download of 30 MB)"
    words="$(uv python install 3.12 2>&1)" ||
        fail "uv could not bring Python 3.12: install what is missing ($command); uv says: ${words//$'\n'/ }"
    if ! python="$(uv python find --system 3.12 2>/dev/null)" || ! facts="$(probe "$python")"; then
        fail "uv python find --system 3.12 names no Python that runs, though uv python install 3.12 succeeded"
    fi
    rm -rf "$venv"  # of a Python that is not whole
    brought=1
    complete_python  # where there is no wheel of fairseq-fixed, a compiler is missing still
}

# What a finished .venv must hold; another path counts, because the commands in .venv/bin name theirs.
wanted_stamp() {
    echo "python $(identity "$facts")"
    echo "repository $repository"
    echo "versions $VECO_VERSIONS"
    echo "pins $(cat "$lock" "$repository/setup.py" "$mend" | cksum)"
}

# logged COMMAND...: with its output in the log
logged() { "$@" >>"$log" 2>&1; }

# locked PATTERN [not]: the lock's packages with such a name, or all others, with their hashes
locked() {
    awk -v pattern="$1" -v without="${2:+1}" '
        /^[A-Za-z]/ { name = tolower($0); sub(/==.*/, "", name); keep = (name ~ pattern) != without + 0 }
        /^#/ { keep = 0 }
        keep' "$lock"
}

# pip_install STEP ARGUMENTS...: STEP is told, unless it is empty
pip_install() {
    local step="$1"; shift
    [[ -z "$step" ]] || say "$step"
    # without CUDA_HOME: with it, fairseq compiles GPU extensions that no text task uses
    if logged env -u CUDA_HOME "$venv/bin/python" -m pip --no-input --disable-pip-version-check install "$@"; then return; fi
    if grep -qi "no space left on device\|disk quota exceeded" "$log"; then
        fail "the disk is full: free some space (about 3 GB, 10 GB with CUDA) and run it again; pip's log: $log"
    elif grep -q "DO NOT MATCH THE HASHES" "$log"; then
        fail "a package is not the file that $lock names (see there): check pip's index, and what is between; pip's log: $log"
    elif grep -qi "failed building\|failed to build" "$log"; then
        fail "a package could not be compiled; the compiler's words are in pip's log: $log"
    elif grep -qi "could not find a version\|connection\|timed out\|name resolution" "$log"; then
        fail "a download failed: check the network and pip's settings, and run it again; pip's log: $log"
    fi
    fail "pip could not install a package; pip's log: $log"
}

# What the .venv that is there cannot be brought up to date for; nothing if it can.
why_anew() {
    local venv_facts held=pinned
    if [[ -e "$unfinished" ]]; then
        echo "its making was cut off"
    elif ! venv_facts="$(probe "$venv/bin/python")"; then
        echo "its Python does not run"
    elif [[ "$(identity "$venv_facts")" != "$(identity "$facts")" ]]; then
        echo "it is of another Python, $(identity "$venv_facts")"
    elif [[ -f "$stamp" ]]; then
        if ! grep -qxF "repository $repository" "$stamp"; then echo "the repository was moved"; return; fi
        if grep -q "^versions " "$stamp"; then held="$(grep "^versions " "$stamp")"; fi
        if [[ "${held#versions }" != "$VECO_VERSIONS" ]]; then echo "it has the ${held#versions } versions"; fi
    fi
}

is_up_to_date() {
    [[ -f "$stamp" && ! -e "$unfinished" && "$(<"$stamp")" == "$(wanted_stamp)" ]] && "$venv/bin/python" -c "" 2>/dev/null
}

choose_python
if is_up_to_date; then exit 0; fi
{ : >>"$repository/.venv.lock"; } 2>/dev/null ||
    fail "$repository: cannot be written, and its .venv is missing or out of date: let its owner run setup.sh, or free space"

# One at a time: two tests started together would install into one folder.
if command -v flock >/dev/null; then
    exec 9>"$repository/.venv.lock"
    flock 9
    if is_up_to_date; then exit 0; fi  # another has made it meanwhile
fi

if [[ -d "$venv" ]]; then
    why="$(why_anew)"
    if [[ -n "$why" ]]; then
        say "removing .venv: $why"
        rm -rf "$venv"
        choose_python
    fi
fi
complete_python

if [[ ! -d "$venv" ]]; then
    say "1/4 making .venv with $python (seconds)"
    mkdir "$venv"
    : >"$unfinished"
    "$python" -m venv "$venv" >"$log" 2>&1 || fail "python -m venv failed; its output: $log"
else
    say "1/4 .venv is there, bringing it up to date"
    : >"$unfinished"
    : >"$log"
fi

# torch first: fairseq-fixed is compiled against it, and without build isolation pip downloads it once, not twice.
# --no-deps: the lock has all that is needed, with hashes; torch alone comes from the index that pip's settings name.
first="$venv/veco-setup.first" rest="$venv/veco-setup.rest"
locked '^(cython|filelock|fsspec|jinja2|markupsafe|mpmath|networkx|numpy|setuptools|sympy|typing-extensions|wheel)$' >"$first"
locked '^torch$' not >"$rest"
pip_install "2/4 installing torch and numpy (a download of 0.3 GB, or 3 GB with CUDA: 1 to 10 minutes)" \
    --require-hashes --no-deps -r "$first"
pip_install "" "$(locked '^torch$' | grep -o '^torch==[^ ]*')"
# Then what the lock has, and nothing else: fairseq-fixed declares torchaudio, which nothing here needs. transformers
# imports it wherever it is installed, and fails where it cannot be loaded beside this build of torch.
pip_install "3/4 installing fairseq and the rest (up to 4 minutes where fairseq is compiled, else seconds)" \
    --no-build-isolation --require-hashes --no-deps -r "$rest"
logged "$venv/bin/python" -m pip uninstall --yes torchaudio || true  # of a .venv made before
pip_install "4/4 installing veco_fairseq from $repository (seconds)" --no-build-isolation --no-deps -e "$repository"
if [[ "$VECO_VERSIONS" != pinned ]]; then
    # shellcheck disable=SC2046  words are requirements
    pip_install "and the $VECO_VERSIONS versions (as much as torch once more)" \
        --upgrade $("$venv/bin/python" "$repository/scripts/versions.py" "$VECO_VERSIONS")
fi
mended="$("$venv/bin/python" -m veco_fairseq mend-fairseq 2>&1)" || fail "${mended#*error: }"

wanted_stamp >"$stamp"
rm "$unfinished"
say "done"
