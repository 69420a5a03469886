# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
# shellcheck shell=bash
#
# Understanding: from a task's files and a pre-trained model to figures by language. This file sources what it needs.

source "${BASH_SOURCE[0]%/*}/pretraining.sh"
source "${BASH_SOURCE[0]%/*}/downloads.sh"
source "${BASH_SOURCE[0]%/*}/examples.sh"

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
about setting "transfer|translate-train" "transfer: train on English; translate-train: on all training sets in OUT/data, English and its translations"
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

# texts_of FILE...: print the texts of these files of examples.
texts_of() {
    local file
    for file; do
        some "$file" --text || return
    done
}

# small_model_of_data: with --try and without --pretrained, pre-train a tiny VECO on the texts in OUT/data. Texts that are there
# already stay as they are: with newer ones the model would be another one, and refused.
small_model_of_data() {
    local file lang langs files texts=()
    [[ -z ${OPTIONS[pretrained]} ]] && trying || return 0
    local -A of=()
    for file in "$OUT"/data/*-*.*; do
        case $file in
        *.done | *.gold) continue ;;
        *.eng | *.en) lang=en ;;
        *) lang=${file##*/} && lang=${lang#*-} && lang=${lang%.*} && lang=${lang//-/_} ;;
        esac
        of[$lang]+=$file$'\n'
    done
    mapfile -t langs < <(printf '%s\n' "${!of[@]}" | LC_ALL=C sort)
    for lang in "${langs[@]}"; do
        mapfile -t files < <(printf '%s' "${of[$lang]}")
        REMAKE='' step "text, $lang" "$OUT/text/$lang" to_file "{}" texts_of "${files[@]}"
        texts+=("$lang=$OUT/text/$lang")
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
    local option
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
    for option in "${EXTRA[@]%%=*}"; do
        [[ $option != --@(lr|max-epoch|batch-size|max-sentences|save-dir) ]] ||
            die "$option: is the grid's: give --lrs, --epochs, --batches or --name before the --"
    done
    [[ ${OPTIONS[setting]}.${OPTIONS[plug]} != transfer.in ]] ||
        die "--plug in: needs translations to train on: give --setting translate-train"
    require_pretrained
}

# finetune_task OPTION...: train every point of the grid, with further options of fairseq-train, and keep the one with the
# best mean over the dev languages: OUT/checkpoints/NAME.sSEED/checkpoint_best.pt.
finetune_task() {
    local name=${OPTIONS[setting]}.${OPTIONS[plug]} lrs=${OPTIONS[lrs]} seed folder batch file
    local start=(--finetune-from-model "$PRETRAINED") langs=() train=() launch command
    require_whole "$OUT/data"
    if [[ ${OPTIONS[setting]} == translate-train ]]; then
        for file in "$OUT"/data/train-*; do # OUT is no pattern, whatever its name has
            [[ ! -f $file || $file == *.done ]] || train+=("$file")
        done
        ((${#train[@]} > 1)) || die "--setting translate-train: $OUT/data has training data in one language alone: \
put the translations there, as train-LANG, or give --setting transfer"
    fi
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
            "${OPTIMIZER[@]}" --lr-scheduler linear_by_epoch --required-batch-size-multiple 1 --seed "$seed"
            --best-checkpoint-metric score --maximize-best-checkpoint-metric --no-epoch-checkpoints
            --log-format simple --log-interval 100 "$@" "${EXTRA[@]}")
        same_training "$folder" "${command[@]}" "$(LC_ALL=C && cat "$OUT"/data/*.{tsv,conllu,json} 2>/dev/null | cksum)"
        grid "$folder" "$lrs" "${command[@]}"
        let_train
    done
}

# grid FOLDER RATES COMMAND...: train each point that has no score yet, and say if points of earlier calls count, too. FOLDER.command
# gets the words of COMMAND.
grid() {
    local folder=$1 lrs=$2 batch epochs lr point code failed=() asked=' ' others=()
    shift 2
    printf '%q ' "$@" >"$folder.command"
    for batch in ${OPTIONS[batches]}; do
        for epochs in ${OPTIONS[epochs]}; do
            for lr in $lrs; do
                point=$folder/batch$batch.epochs$epochs.lr$lr
                asked+="${point##*/} "
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
                    failed+=("${point##*/}")
                    continue
                fi
                python "$REPOSITORY/data-bin-recipes/xtreme/keep_better.py" "$point" "$folder" || exit
            done
        done
    done
    for point in "$folder"/*/; do
        point=${point%/} && point=${point##*/}
        [[ ! -f $folder/$point/score || $asked == *" $point "* ]] || others+=("$point")
    done
    ((!${#others[@]})) || say "[fine-tuning] ${others[*]} of earlier calls count, too: to leave them out, give another --name"
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
    local name=${OPTIONS[name]} from=${OPTIONS[from]:-$OUT} seed point checkpoint checkpoints=() split=
    require_whole "$OUT/data"
    for seed in ${OPTIONS[seeds]}; do
        checkpoint=$from/checkpoints/$name.s$seed/checkpoint_best.pt
        require "$checkpoint" "run finetune.sh first"
        checkpoints+=("$checkpoint")
        for point in "$from/checkpoints/$name.s$seed"/*/; do
            [[ -f $point/score ]] ||
                say "$(basename "$point") of $name.s$seed is not finished: this evaluates the best of the others"
        done
    done
    [[ ! " ${EXTRA[*]} " =~ " --split"[\ =]([^\ ]+)" " || ${BASH_REMATCH[1]} == test ]] || split=.${BASH_REMATCH[1]} # with figures of its own
    rm -rf -- "$OUT/predictions/$name$split"
    run python "$REPOSITORY/scripts/evaluate_xtreme.py" run "${checkpoints[@]}" --data "$OUT/data" \
        --json "$OUT/scores/$name$split.json" --predictions "$OUT/predictions/$name$split" "$@" "${EXTRA[@]}"
}
