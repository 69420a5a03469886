# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
# shellcheck shell=bash
#
# Multi30k's texts (image captions, task 1), checked. To be sourced after downloads.sh.

MULTI30K=https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw
# These are of the texts, not of the compressed files, which may have been compressed anew.
MULTI30K_CHECKSUMS=$(cat <<'SHA256'
45adb85f688de8407fddcbe1b36dca15d12aab868149b337e2576f2d6d2ff8d8 test_2016_flickr.cs
4be6b5b3236b79c25475c6bb829800a7ce559e9ba7a1f6c2394fe4d40be46d16 test_2016_flickr.de
399a4382932c1aadd3ceb9bef1008d388a64c76d4ae4e9d4728c6f4301cac182 test_2016_flickr.en
cb3160d69b002bb638e66cc7612fcd56cb0af82eadc9c142dedc438afb885ef6 test_2016_flickr.fr
2be68b38c8d586ff4f54eb13cc6e1baaaa053695b3f070d3038303a47f2268da train.cs
2c2b73fd2b548fbcde3a875e0a78d6ee94d498bfdee6bd3eae3945779e9ddf72 train.de
460a15fbd157e34a7a9957ee388c1ca247fe47af3ef25fb50442af6c274e0fc6 train.en
5925a3c18f1587b6b54b87743106e6e8ab93618edb6f65d19eac0621f853a10d train.fr
d53827e469b0a1ca8d57e9e26b2b64c4bc4b33f5479c7b03ae87ae5c882c3e33 val.cs
660e09eb7e1da2f856ea13ee5ad3cf6d36b3d5b0b733c857e94c5747a3dfc660 val.de
1f2a23d992769b5b3d209b0a10dd0b77c08cceb1f20dfb97ed0aafa49d107227 val.en
5304e444d842e962b2dda4d816b70b22a1765b15401642b7ca37a67477e708dc val.fr
SHA256
)

# find_captions NAME: set FILE to the text of this name in --local. LANGS are the recipe's, as is OTHER_NAMES, which says what
# else --local may have.
find_captions() {
    local langs
    langs=$(IFS=, && printf '%s' "${LANGS[*]}")
    find_text "${OPTIONS[local]}" "$1" "--local needs {train,val,test_2016_flickr}.{$langs}${OTHER_NAMES:-}, plain or .gz"
}

# fetch NAME FILE LINES: write the text of this name to FILE, and check it; 0 LINES: all of it.
fetch() {
    local name=$1 file=$2 lines=$3 expected
    if [[ -n ${OPTIONS[local]} ]]; then
        find_captions "$name"
        first 0 "$FILE" >"$file" || return
    else
        require_curl
        curl --fail --silent --show-error --location --retry 3 --max-time 600 "$MULTI30K/$name.gz" | gzip -dc >"$file" ||
            die "$MULTI30K/$name.gz: cannot be downloaded: try again, or get the files in another way and give --local DIR"
    fi
    expected=$(awk -v name="$name" '$2 == name { print $1 }' <<<"$MULTI30K_CHECKSUMS")
    [[ $(sha256sum <"$file" | cut -d ' ' -f 1) == "$expected" ]] ||
        die "$name: is not the text that this recipe was made for (its SHA-256 should be $expected)"
    if ((lines)); then
        first "$lines" "$file" >"$file.first" && mv -- "$file.first" "$file"
    fi
}
