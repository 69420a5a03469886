#!/usr/bin/env bash
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
#
# Makes .venv in the repository, with the versions of scripts/requirements.lock and this package (editable).
# Does nothing when it is up to date; a .venv whose making was cut off is made anew.
#
#   VECO_PYTHON=/path/to/python bash scripts/setup.sh     builds it from that interpreter (3.11, 3.12 or 3.13)
set -euo pipefail

repository="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
lock="$repository/scripts/requirements.lock"
venv="$repository/.venv"
stamp="$venv/veco-setup.stamp"        # written last: what .venv holds
unfinished="$venv/veco-setup.unfinished"  # there while .venv is being made or changed
log="$venv/veco-setup.log"

say() { echo "setup: $*"; }
fail() { echo "setup.sh: error: $*" >&2; exit 1; }

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

supported() { [[ "$1" =~ ^3\.1[123]\  ]]; }

# The interpreter: the user's, else the one .venv was made with, else the first supported one. 3.12 comes first
# because there is a wheel of fairseq-fixed for it, so that nothing has to be compiled.
choose_python() {
    if [[ -n "${VECO_PYTHON:-}" ]]; then
        python="$VECO_PYTHON"
        facts="$(probe "$python")" || fail "VECO_PYTHON=$python does not run: give the path of a Python 3.11 to 3.13"
        supported "$facts" || fail "VECO_PYTHON=$python is Python ${facts%% *}: fairseq needs 3.11, 3.12 or 3.13"
        return
    fi
    for python in "$venv/bin/python" python3.12 python3.11 python3.13 python3; do
        if facts="$(probe "$python")" && supported "$facts"; then return; fi
    done
    fail "no Python 3.11, 3.12 or 3.13 found: install one, or name it with VECO_PYTHON=/path/to/python"
}

# What a finished .venv must hold; another path counts, because the commands in .venv/bin name theirs.
wanted_stamp() {
    echo "python $(identity "$facts")"
    echo "repository $repository"
    echo "pins $(cat "$lock" "$repository/setup.py" | cksum)"
}

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
    if env -u CUDA_HOME "$venv/bin/python" -m pip --no-input --disable-pip-version-check install "$@" >>"$log" 2>&1
    then return; fi
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

# fairseq-fixed is compiled unless there is a wheel of it: on the index for 3.12 on Linux, or in pip's cache.
check_compiler() {
    local version="${facts%% *}"
    if "$venv/bin/python" -m pip show fairseq-fixed >/dev/null 2>&1; then return; fi
    if [[ "$version" == 3.12 && "$(uname -sm)" == "Linux x86_64" ]]; then return; fi
    if "$venv/bin/python" -m pip cache list fairseq_fixed 2>/dev/null | grep -q -- "-cp${version/./}-"; then return; fi
    local compiler
    for compiler in ${CXX:+"$CXX"} c++ g++ clang++ ""; do
        [[ -n "$compiler" ]] || fail "no C++ compiler, which fairseq-fixed is compiled with on Python $version:" \
            "install one (Debian, Ubuntu: apt-get install g++), or use Python 3.12, which has a wheel"
        if command -v "${compiler%% *}" >/dev/null; then break; fi
    done
    [[ "$facts" == *" headers "* ]] || fail "no Python.h, which fairseq-fixed is compiled with on Python $version:" \
        "install Python's headers (Debian, Ubuntu: apt-get install python$version-dev)"
}

choose_python
if [[ -f "$stamp" && ! -e "$unfinished" && "$(cat "$stamp")" == "$(wanted_stamp)" ]] \
    && "$venv/bin/python" -c "" 2>/dev/null; then
    exit 0
fi

# One at a time: two tests started together would install into one folder.
if command -v flock >/dev/null; then
    exec 9>"$repository/.venv.lock"
    flock 9
fi

# A .venv is made anew if its making was cut off, or it's another interpreter's, or the repository was moved.
if [[ -d "$venv" ]]; then
    if [[ -e "$unfinished" ]]; then
        why="its making was cut off"
    elif ! venv_facts="$(probe "$venv/bin/python")"; then
        why="its Python does not run"
    elif [[ "$(identity "$venv_facts")" != "$(identity "$facts")" ]]; then
        why="it is of another Python, $(identity "$venv_facts")"
    elif [[ -f "$stamp" ]] && ! grep -qxF "repository $repository" "$stamp"; then
        why="the repository was moved"
    else
        why=""
    fi
    if [[ -n "$why" ]]; then
        say "removing .venv: $why"
        if [[ "$python" == "$venv/bin/python" ]]; then rm -rf "$venv"; choose_python; fi
        rm -rf "$venv"
    fi
fi

if [[ ! -d "$venv" ]]; then
    [[ "$facts" == *" venv "* ]] || fail "$python has no venv module:" \
        "install it (Debian, Ubuntu: apt-get install python${facts%% *}-venv)"
    say "1/4 making .venv with $python (seconds)"
    mkdir "$venv"
    : >"$unfinished"
    "$python" -m venv "$venv" >"$log" 2>&1 || fail "python -m venv failed; its output: $log"
else
    say "1/4 .venv is there, bringing it up to date"
    : >"$unfinished"
    : >"$log"
fi
check_compiler

# torch first: fairseq-fixed is compiled against it, and without build isolation pip downloads it once, not twice.
# --no-deps: the lock has all that is needed, with hashes; torch alone comes from the index that pip's settings name.
first="$venv/veco-setup.first" rest="$venv/veco-setup.rest"
locked '^(cython|filelock|fsspec|jinja2|markupsafe|mpmath|networkx|numpy|setuptools|sympy|typing-extensions|wheel)$' >"$first"
locked '^torch$' not >"$rest"
pip_install "2/4 installing torch and numpy (a download of 0.3 GB, or 3 GB with CUDA: 1 to 10 minutes)" \
    --require-hashes --no-deps -r "$first"
pip_install "" "$(locked '^torch$' | grep -o '^torch==[^ ]*')"
pip_install "3/4 installing fairseq and the rest (up to 4 minutes where fairseq is compiled, else seconds)" \
    --no-build-isolation --require-hashes --no-deps -r "$rest"
pip_install "4/4 installing veco_fairseq from $repository (seconds)" --no-build-isolation --no-deps -e "$repository"

wanted_stamp >"$stamp"
rm "$unfinished"
say "done"
