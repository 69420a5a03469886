# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
# shellcheck shell=bash
#
# Understanding: from a task's files and a pre-trained model to figures by language. This file sources what it needs.

source "$(dirname "${BASH_SOURCE[0]}")/pretraining.sh"
source "$(dirname "${BASH_SOURCE[0]}")/downloads.sh"

about train PATTERN "names of the training files in --local, plain or .gz, with @ for the language; a language without such \
a file is left out"
about dev PATTERN "likewise for the development set"
about test PATTERN "likewise for the test set"
about hold-out N "take the last N training examples as the development set; 0: there is a development set (the download of TyDiQA \
has none, and so takes 369)"
about langs "\"LANG ...\"" "the languages to take"
about translations DIR "folder of SQuAD's training set in other languages, squad.translate.train.en-LANG.json from XTREME's \
public folder of translations, for --setting translate-train (default: none)"
about arm "pretrained|random" "pretrained: start from the pre-trained model; random: take only its vocabulary"
about arch ARCH "veco_nlu_SIZE, of the pre-trained model's size"
about setting "transfer|translate-train" "transfer: train on English; translate-train: on all languages"
about plug "out|in" "in: predict a sentence from [H; S], with its translation; needs translate-train"
about name NAME "the model's name, which keeps several apart; without it finetune.sh takes SETTING.PLUG, or random.SETTING.PLUG"
about seeds "\"N ...\"" "seeds, several for mean and standard deviation"
about seed N "one seed, instead of --seeds"
about lrs "\"X ...\"" "the grid's learning rates (default: 5e-6 8e-6 1e-5 2e-5 3e-5, for translate-train 5e-6 6e-6 7e-6 8e-6 9e-6)"
about epochs "\"N ...\"" "the grid's numbers of epochs"
about batches "\"N ...\"" "the grid's batch sizes, in examples; with --plug in, in pairs of translations"
about from DIR "evaluate the model in this folder of another task (default: --out)"
about layer N "take the states of this layer (default: the last)"

# Examples that --try takes of a training set, and of each other split.
TRY_TRAIN=200
TRY_REST=50
TRY_PIECES=2000

# begin: set OUT.
begin() { choose_out "xtreme/$RECIPE"; }

# prepare_options NAME=DEFAULT... -- "$@": read the options of prepare.sh, and set OUT and LANGS. The recipe gives its
# languages and the names of its files in --local.
prepare_options() {
    local argument lang
    parse_options out= local= try "$@"
    begin
    MADE=()
    read -ra LANGS <<<"${OPTIONS[langs]}"
    [[ ! -v OPTIONS[hold-out] ]] || require_number hold-out
    if [[ -n ${OPTIONS[local]} ]]; then
        require "${OPTIONS[local]}" "--local must be the folder with the task's files"
        [[ -z ${OPTIONS[translations]:-} ]] || die "--translations: is for downloads; with --local give --train PATTERN"
        return
    fi
    for argument; do
        [[ $argument != -- ]] || break
        [[ $argument == langs=* ]] || continue
        for lang in "${LANGS[@]}"; do
            [[ " ${argument#langs=} " == *" $lang "* ]] || die "--langs $lang: must be one of ${argument#langs=}"
        done
    done
}

# unpacked ARCHIVE...: set SOURCE to --local, or to the folder that these archives are unpacked into. A name that does not
# begin with / is one of OUT/downloads. From here to `tidy` the data are not whole.
unpacked() {
    local name paths=()
    make_folder "$OUT" && : >"$OUT/data.unfinished"
    SOURCE=${OPTIONS[local]:-$OUT/unpacked}
    [[ -z ${OPTIONS[local]} ]] || return 0
    for name; do
        [[ $name == /* ]] || name=$OUT/downloads/$name
        paths+=("$name")
    done
    step unpacking "$SOURCE" unpack "{}" "${paths[@]}"
}

# squad ARCHIVE...: as unpacked, and also with SQuAD 1.1 and the translations of its training set in --translations.
squad() {
    local url=https://rajpurkar.github.io/SQuAD-explorer/dataset translations=()
    archive $url/train-v1.1.json 3527663986b8295af4f7fcdff1ba1ff3f72d07d61a20f487cb238a6ef92fd955 squad-train.en.json
    archive $url/dev-v1.1.json 95aa6a52d5d6a735563366753ca50492a658031da74f301ac5238b03966972c9 squad-dev.en.json
    if [[ -n ${OPTIONS[translations]} ]]; then
        translations=("$(realpath "${OPTIONS[translations]}")"/squad.translate.train.en-*.json)
        [[ -e ${translations[0]} ]] || die "${OPTIONS[translations]}: has no squad.translate.train.en-LANG.json"
    fi
    unpacked squad-train.en.json squad-dev.en.json "$@" "${translations[@]}"
}

# matching PATTERN LANG: set FILES to the files in SOURCE that match this pattern, in which @ stands for the language.
matching() {
    local pattern=${1//@/$2}
    mapfile -t FILES < <(cd "$SOURCE" && { compgen -G "$pattern" || compgen -G "$pattern.gz"; } | LC_ALL=C sort)
    FILES=("${FILES[@]/#/"$SOURCE/"}") # in quotes: bash 5.2 takes an & for what was replaced
}

# examples SPLIT SUFFIX PATTERN [COMMAND...]: make OUT/data/SPLIT-LANG.SUFFIX for each language that has such files in
# SOURCE, from what COMMAND prints of them. Files of --local are taken as they are, with the pattern of --SPLIT. With
# --hold-out N the last N training examples are the dev set.
examples() {
    local split=$1 suffix=$2 pattern=$3 held=0 lang whole part without=() found=() lines=() advice=
    shift 3
    if [[ -n ${OPTIONS[local]} ]]; then
        pattern=${OPTIONS[$split]}
        [[ $pattern == *@* || ${#LANGS[@]} == 1 ]] ||
            die "--$split $pattern: has no @ for the language: put one in, or give --langs LANG"
        set --
    fi
    (($#)) || set -- first 0
    if ((${OPTIONS[hold-out]:-0})); then
        [[ $split != dev ]] || return 0
        [[ $split != train ]] || held=${OPTIONS[hold-out]}
    fi
    for lang in "${LANGS[@]}"; do
        matching "$pattern" "$lang"
        if ((${#FILES[@]} == 0)); then
            without+=("$lang")
            continue
        fi
        [[ $suffix == conllu || ${#FILES[@]} == 1 ]] ||
            die "${FILES[*]}: are several files of one language: --$split must match only one"
        found+=("$lang") part=$OUT/data/$split-$lang.$suffix whole=$part
        ((held == 0)) || whole=$OUT/raw/$split-$lang.$suffix
        if trying && [[ $suffix == @(tsv|conllu|json) ]]; then
            step "$split set, $lang" "$OUT/whole/$split-$lang.$suffix" to_file "{}" "${@//@/$lang}" "${FILES[@]}"
            step "some of the $split set, $lang" "$whole" to_file "{}" \
                some "$OUT/whole/$split-$lang.$suffix" --first $(($(lines_of "$split") + held))
        else
            step "$split set, $lang" "$whole" to_file "{}" "${@//@/$lang}" "${FILES[@]}"
            [[ -z ${OPTIONS[local]} || -s $whole ]] || die "${FILES[*]}: has no text"
        fi
        MADE+=("$split-$lang.$suffix")
        if ((held)); then
            step "what is left to train on, $lang" "$part" to_file "{}" some "$whole" --but-last "$held"
            step "dev set, $lang" "$OUT/data/dev-$lang.$suffix" to_file "{}" some "$whole" --last "$held"
            MADE+=("dev-$lang.$suffix")
            lines+=("$(wc -l <"$whole")")
        fi
    done
    [[ $split != dev || ! -v OPTIONS[hold-out] ]] || advice=", or --hold-out N, which takes it from the training set"
    ((${#found[@]})) || die "$SOURCE: has no $split set: no file ${pattern}[.gz], with a language for @ (${LANGS[*]}): \
give --$split PATTERN for other names$advice"
    ((${#without[@]} == 0)) || say "no $split set for ${without[*]}"
    (($(printf '%s\n' "${lines[@]}" | sort -u | wc -l) < 2)) ||
        say "the training sets differ in length, so their rows are not translations of each other: use --plug out"
}

# tidy: remove what an earlier call with other options has left in OUT/data, which is whole now.
tidy() {
    local file name
    for file in "$OUT"/data/*.done; do
        name=$(basename "$file" .done)
        [[ " ${MADE[*]} " == *" $name "* ]] || rm -f -- "$OUT/data/$name" "$file"
    done
    rm -f -- "$OUT/data.unfinished"
}

# small_model_of_data: with --try and without --pretrained, pre-train a tiny VECO on the texts in OUT/data.
small_model_of_data() {
    local file lang texts=()
    [[ -z ${OPTIONS[pretrained]} ]] && trying || return 0
    rm -rf -- "$OUT/text"
    make_folder "$OUT/text"
    for file in "$OUT"/data/*-*.*; do
        case $file in
        *.done | *.gold) continue ;;
        *.eng | *.en) lang=en ;;
        *) lang=$(basename "$file") && lang=${lang#*-} && lang=${lang%.*} && lang=${lang//-/_} ;;
        esac
        some "$file" --text >>"$OUT/text/$lang" || exit
    done
    for file in "$OUT"/text/*; do
        texts+=("$(basename "$file")=$file")
    done
    small_model --mono "${texts[@]}"
}

# require_seeds: take --seed as the only one of --seeds, and end unless they are numbers.
require_seeds() {
    OPTIONS[seeds]=${OPTIONS[seed]:-${OPTIONS[seeds]}}
    require_numbers seeds
}

# require_numbers NAME...: end unless these options are whole numbers with spaces between them.
require_numbers() {
    local name
    for name; do
        [[ " ${OPTIONS[$name]}" =~ ^(\ +(0|[1-9][0-9]*))+$ ]] || die "--$name ${OPTIONS[$name]}: must be whole numbers"
    done
}

# finetune_options NAME=DEFAULT... -- "$@": read the options of finetune.sh. The grid is the paper's (appendix C).
finetune_options() {
    PROGRAM=fairseq-train
    parse_options out= pretrained= arm=pretrained arch=veco_nlu_base setting=transfer plug=out name= seeds=1 seed= lrs= \
        epochs="3 5 10" batches="16 32 64" workers=0 try "$@"
    in_try arch=veco_nlu_tiny lrs=5e-4 epochs=2 batches=16
    require_choice arm pretrained random
    require_choice setting transfer translate-train
    require_choice plug out in
    require_number workers
    require_seeds
    require_numbers epochs batches
    begin
    [[ ${OPTIONS[setting]}.${OPTIONS[plug]} != transfer.in ]] ||
        die "--plug in: needs translations to train on: give --setting translate-train"
    require_pretrained
}

# finetune_task OPTION...: train every point of the grid, with further options of fairseq-train, and keep the one with the
# best mean over the dev languages: OUT/checkpoints/NAME.sSEED/checkpoint_best.pt.
finetune_task() {
    local name=${OPTIONS[setting]}.${OPTIONS[plug]} lrs=${OPTIONS[lrs]} seed folder batch
    local start=(--finetune-from-model "$PRETRAINED") langs=() launch command
    require_whole "$OUT/data" "$OUT/data.unfinished"
    small_model_of_data
    choose_device
    launch=(fairseq-train --distributed-world-size 1) # without this it takes all GPUs
    ((WORKERS == 1)) || launch=(bash "$REPOSITORY/scripts/launch.sh" --workers "$WORKERS" --)
    for batch in ${OPTIONS[batches]}; do
        ((batch % WORKERS == 0)) || die "--batches $batch: cannot be divided among $WORKERS workers: give --workers N"
    done
    if [[ ${OPTIONS[arm]} == random ]]; then
        start=(--vocabulary "$(dirname "$PRETRAINED")")
        name=random.$name
    fi
    name=${OPTIONS[name]:-$name}
    if [[ ${OPTIONS[setting]} == transfer ]]; then
        langs=(--train-langs en)
        lrs=${lrs:-5e-6 8e-6 1e-5 2e-5 3e-5}
    fi
    lrs=${lrs:-5e-6 6e-6 7e-6 8e-6 9e-6}
    for seed in ${OPTIONS[seeds]}; do
        folder=$OUT/checkpoints/$name.s$seed
        command=("${launch[@]}" "$OUT/data" --user-dir "$USER_DIR" --task veco_nlu --criterion veco_nlu
            --arch "${OPTIONS[arch]}" --plug "${OPTIONS[plug]}" "${start[@]}" "${langs[@]}" "${DEVICE[@]}"
            --optimizer adam --adam-betas '(0.9, 0.98)' --adam-eps 1e-6 --clip-norm 1.0 --weight-decay 0.01
            --lr-scheduler linear_by_epoch --required-batch-size-multiple 1 --seed "$seed"
            --best-checkpoint-metric score --maximize-best-checkpoint-metric --no-epoch-checkpoints
            --log-format simple --log-interval 100 "$@" "${EXTRA[@]}")
        same_training "$folder" "${command[@]}" "$(cat "$OUT"/data/*.{tsv,conllu,json} 2>/dev/null | cksum)"
        grid "$folder" "$lrs" "${command[@]}"
    done
}

# grid FOLDER RATES COMMAND...: train each point that has no score yet.
grid() {
    local folder=$1 lrs=$2 batch epochs lr point code failed=()
    shift 2
    for batch in ${OPTIONS[batches]}; do
        for epochs in ${OPTIONS[epochs]}; do
            for lr in $lrs; do
                point=$folder/batch$batch.epochs$epochs.lr$lr
                if [[ -f $point/score ]]; then
                    rm -f -- "$point"/checkpoint_*.pt
                    say "[fine-tuning] already there: $point"
                    continue
                fi
                say "[fine-tuning] makes $point"
                code=0
                run "$@" --batch-size $((batch / WORKERS)) --max-epoch "$epochs" --lr "$lr" --save-dir "$point" ||
                    code=$?
                if ((code)); then # a training that diverges does not stop the others
                    ((code < 128)) && [[ -e $folder/grid.json ]] ||
                        die "fine-tuning failed (exit code $code): see the lines above"
                    failed+=("$(basename "$point")")
                    continue
                fi
                python "$REPOSITORY/data-bin-recipes/xtreme/keep_better.py" "$point" "$folder" || exit
            done
        done
    done
    ((${#failed[@]} == 0)) || die "$folder: ${failed[*]}: failed, see the lines above; the best of the others is kept"
}

# evaluate_options -- "$@": read the options of evaluate.sh.
evaluate_options() {
    PROGRAM="evaluate_xtreme.py run"
    parse_options out= name=transfer.out seeds=1 seed= from= try "$@"
    require_seeds
    begin
}

# evaluate_task OPTION...: print figures by language on the test set, over all seeds, with options of evaluate_xtreme.py
# run.
evaluate_task() {
    local name=${OPTIONS[name]} from=${OPTIONS[from]:-$OUT} seed point checkpoint checkpoints=()
    require_whole "$OUT/data" "$OUT/data.unfinished"
    for seed in ${OPTIONS[seeds]}; do
        checkpoint=$from/checkpoints/$name.s$seed/checkpoint_best.pt
        require "$checkpoint" "run finetune.sh first"
        checkpoints+=("$checkpoint")
        for point in "$from/checkpoints/$name.s$seed"/*/; do
            [[ -f $point/score ]] ||
                say "$(basename "$point") of $name.s$seed is not finished: this evaluates the best of the others"
        done
    done
    rm -rf -- "$OUT/predictions/$name"
    run python "$REPOSITORY/scripts/evaluate_xtreme.py" run "${checkpoints[@]}" --data "$OUT/data" \
        --json "$OUT/scores/$name.json" --predictions "$OUT/predictions/$name" "$@" "${EXTRA[@]}"
}
