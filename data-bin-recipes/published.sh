# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
#
# What the recipes of published data sets share: downloads, and the pre-trained model that they begin with. To be
# sourced as common.sh, which it sources.

source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

# require_pretrained: sets PRETRAINED.
require_pretrained() {
    PRETRAINED=${OPTIONS[pretrained]}
    [[ -n $PRETRAINED ]] || die "--pretrained is needed: a checkpoint of pre-training"
    require "$PRETRAINED" "--pretrained must be a checkpoint of pre-training"
}

# choose_device: sets WORKERS (of --workers, by default all GPUs of this machine) and DEVICE, options of fairseq-train.
choose_device() {
    local extra=" ${EXTRA[*]} "
    WORKERS=${OPTIONS[workers]} DEVICE=(--fp16)
    [[ $extra != *" --cpu "* && $extra != *" --amp "* ]] || DEVICE=() # fairseq takes one of the two
    if ((WORKERS == 0)); then
        WORKERS=1
        [[ $extra == *" --cpu "* ]] || WORKERS=$(python -c 'import torch; print(torch.cuda.device_count())')
    fi
    ((WORKERS)) || die "no GPU here: add -- --cpu to train on the processor"
}

# is_file FILE CHECKSUM: whether FILE has this SHA-256 or, of 32 digits, MD5; "any" is for a commit's files, without one.
is_file() {
    local sum=sha256sum
    [[ $2 != any ]] || { [[ -s $1 ]]; return; }
    ((${#2} > 32)) || sum=md5sum
    [[ -f $1 && $($sum <"$1" | cut -d ' ' -f 1) == "$2" ]]
}

# download URL CHECKSUM FILE: goes on where it was interrupted.
download() {
    local url=$1 checksum=$2 file=$3 incoming=${3%.partial}.incoming progress=--silent code=0
    [[ ! -t 2 ]] || progress=--progress-bar
    [[ $checksum != any ]] || rm -f -- "$incoming" # half a file could not be told from a whole one
    if ! is_file "$incoming" "$checksum"; then
        run curl --fail --show-error --location --retry 3 --continue-at - $progress --output "$incoming" "$url" ||
            code=$?
        if ((code)); then
            [[ $code != @(22|33|36) ]] || rm -f -- "$incoming" # what the server won't go on from now, it never will
            die "$url: cannot be downloaded: try again, or fetch the texts otherwise and give --local DIR"
        fi
        if ! is_file "$incoming" "$checksum"; then
            rm -f -- "$incoming"
            die "$url: is not the file that this recipe was made for (its checksum should be $checksum)"
        fi
    fi
    mv -- "$incoming" "$file"
}

# archive URL CHECKSUM [NAME]: OUT/downloads/NAME, unless the texts come from --local.
archive() {
    local name=${3:-${1##*/}}
    [[ -z ${OPTIONS[local]} ]] || return 0
    step "download, $name" "$OUT/downloads/$name" download "$1" "$2" "{}"
}

# member ARCHIVE NAME: a file in an archive of OUT/downloads, unpacked if it is a .gz.
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
