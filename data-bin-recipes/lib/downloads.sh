# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
# shellcheck shell=bash
#
# Texts from elsewhere: downloads that are checked and go on where they were interrupted, and archives. Source this file
# after steps.sh.

# is_file FILE CHECKSUM: whether FILE has this SHA-256, or MD5 if it has 32 digits. "any" is for the files of one commit,
# which have no checksum.
is_file() {
    local sum=sha256sum
    [[ $2 != any ]] || { [[ -s $1 ]]; return; }
    ((${#2} > 32)) || sum=md5sum
    [[ -f $1 && $($sum <"$1" | cut -d ' ' -f 1) == "$2" ]]
}

# require_curl: end where it is missing.
require_curl() {
    [[ -n $(type -t curl) ]] ||
        die "curl is missing, which downloads: install it, or get the texts in another way and give --local DIR"
}

# download URL CHECKSUM FILE: download and check a file; go on where an earlier call was interrupted.
download() {
    local url=$1 checksum=$2 file=$3 incoming=${3%.partial}.incoming progress=--silent code=0 answer
    [[ ! -t 2 ]] || progress=--progress-bar
    [[ $checksum != any ]] || rm -f -- "$incoming" # without a checksum, half a file looks like a whole one
    if ! is_file "$incoming" "$checksum"; then
        require_curl
        run curl --fail --show-error --location --retry 3 --continue-at - $progress --write-out '%{http_code}' \
            --output "$incoming" "$url" >"$file" || code=$?
        answer=$(<"$file")
        rm -f -- "$file"
        if ((code)); then
            # The server does not continue this file, and never will. (It may well after a 503, which is code 22, too.)
            [[ $code.$answer != @(22.416|33.*|36.*) ]] || rm -f -- "$incoming"
            die "$url: cannot be downloaded: try again, or get the texts in another way and give --local DIR"
        fi
        if ! is_file "$incoming" "$checksum"; then
            rm -f -- "$incoming"
            die "$url: is not the file that this recipe was made for (its checksum should be $checksum)"
        fi
    fi
    mv -- "$incoming" "$file"
}

# archive URL CHECKSUM [NAME]: download OUT/downloads/NAME, unless the texts come from --local.
archive() {
    local name=${3:-${1##*/}}
    [[ -z ${OPTIONS[local]} ]] || return 0
    step "download, $name" "$OUT/downloads/$name" download "$1" "$2" "{}"
}

# member ARCHIVE NAME: print a file of an archive in OUT/downloads, unpacked if it is a .gz.
member() {
    local unpack=(cat)
    [[ $2 != *.gz ]] || unpack=(gzip -dc)
    case $1 in
    *.zip)
        python -c 'import shutil, sys, zipfile
shutil.copyfileobj(zipfile.ZipFile(sys.argv[1]).open(sys.argv[2]), sys.stdout.buffer)' "$OUT/downloads/$1" "$2" ;;
    *) tar -xOf "$OUT/downloads/$1" "$2" ;;
    esac | "${unpack[@]}"
}

# unpack FOLDER ARCHIVE...: unpack archives into a folder; other files are copied.
unpack() {
    local folder=$1 path
    shift
    make_folder "$folder"
    for path; do
        case $path in
        *.zip | *.tar.* | *.tgz) python "$REPOSITORY/data-bin-recipes/lib/unpack.py" "$path" "$folder" || return ;;
        *) cp -- "$path" "$folder" || return ;;
        esac
    done
}

# Lines that --try takes of a training text, and of each other split.
TRY_TRAIN=2000
TRY_REST=20

# lines_of SPLIT: print how many lines to take of it; 0: all.
lines_of() {
    if ! trying; then
        echo 0
    elif [[ $1 == train ]]; then
        echo $TRY_TRAIN
    else
        echo $TRY_REST
    fi
}

# first LINES FILE...: print the text of the files, plain or .gz, one after the other, or only this many lines of it. A file's
# last line may have no end.
first() {
    local file
    for file in "${@:2}"; do
        gzip -cdf -- "$file" | sed '$a\' || return
    done | if (($1)); then
        awk -v lines="$1" 'NR <= lines' # head would kill gzip by a signal
    else
        cat
    fi
}

# has FOLDER NAME...: whether the folder has all of these files, plain or .gz.
has() {
    local folder=$1 name
    shift
    for name; do
        [[ -n $folder && (-e $folder/$name || -e $folder/$name.gz) ]] || return 1
    done
}

# find_text FOLDER NAME NEEDED: set FILE to the plain file if there is one, and to the .gz otherwise; NEEDED says what the
# folder must have.
find_text() {
    has "$1" "$2" || die "$1/$2[.gz]: is not there: $3"
    FILE=$1/$2
    [[ -e $FILE ]] || FILE+=.gz
}

# some FILE OPTION...: print some of the examples of a task's file; xtreme/examples.py has the options.
some() { python "$REPOSITORY/data-bin-recipes/xtreme/examples.py" "$@"; }

# members LANG ARCHIVE NAME ARCHIVE NAME...: print these files, one after the other; @ in a NAME stands for LANG.
members() {
    local lang=$1
    shift
    while (($#)); do
        member "$1" "${2//@/$lang}" || return
        shift 2
    done
}

# test_sets LANG NAME...: print one side of these test sets of sacreBLEU, which downloads and checks them.
test_sets() {
    local lang=$1 side=src name
    [[ $lang == "$SRC" ]] || side=ref
    shift
    for name; do
        sacrebleu --test-set "$name" --language-pair "$SRC-$TGT" --echo $side || return
    done
}

# apostrophes LANG COMMAND ARGUMENT...: print what COMMAND LANG ARGUMENT... prints, with apostrophes instead of right single
# quotation marks.
apostrophes() { "$2" "$1" "${@:3}" | sed "s/’/'/g"; }

# to_translate LANG COMMAND ARGUMENT...: do the same to the source alone: scores are compared with the published reference.
to_translate() {
    if [[ $1 == "$SRC" ]]; then
        apostrophes "$@"
    else
        "$2" "$1" "${@:3}"
    fi
}
