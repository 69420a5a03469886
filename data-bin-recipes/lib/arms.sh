# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
# shellcheck shell=bash
#
# The arms of the evidence: how each is pre-trained, and what fine-tuning starts from. This file sources what it needs.

source "${BASH_SOURCE[0]%/*}/many.sh"
source "${BASH_SOURCE[0]%/*}/../evidence/settings"

about arm ARM "the pre-training: veco, or another arm of README.md; random has none"
about data DIRECTION.PAIRS "the direction and the number of pairs of fine-tuning (default: the first of evidence/settings)"
about pretraining N "seed of pre-training"
about dropout X "dropout of fine-tuning"
about set "captions|bible" "captions: image captions, after pre-training on other texts; bible: languages with little text"
about task TASK "xnli, udpos or pud (fine-tuned), or tatoeba or flores (retrieval, without training)"
about plug "out|in" "in: predict a sentence from [H; S], with its translation; needs translate-train"
about results FILE "the file with a line of JSON for each run, to which those of this run are added; finetune.sh reads it \
(compare.sh and cost.sh: default results.jsonl in --out)"

# comparisons: sets SRC, and PAIRS of pre-training, for --set; with --try the settings are smaller.
comparisons() {
    local lang arm task
    OF_SET= # what other scripts need to be given, too
    if [[ ${OPTIONS[set]:=captions} == bible ]]; then
        bible
        OUT+=/bible PREPARE=prepare_bible.sh OF_SET=" --set bible"
        ! trying || LANGS=("${LANGS[@]:0:3}")
    fi
    require_choice set captions bible
    SRC=${LANGS[0]} PAIRS=()
    for lang in "${LANGS[@]:1}"; do
        PAIRS+=("$SRC-$lang")
    done
    trying || return 0
    SIZES=("${SIZES[0]%.*}.1000") GRID_DATA=("${SIZES[0]%.*}.1000") EVERY=([1000]=5) REPEATED=() RATES=(2e-3) SEEDS=(1)
    MOST_UPDATES=10 PIECES=$((3 * TRY_PIECES)) WARMUP=5 VALID=$TRY_REST NLU_RATES=5e-4
    MAIN_ARMS=(veco) JUDGED=("pud veco in" "tatoeba veco out") JUDGED_ONCE=() COSTS=(veco) ATTENTION=(veco) ABLATIONS=() HALF_ARMS=() DEPTHS=() LARGE_ARMS=() MORE_LARGE_ARMS=()
    [[ ${OPTIONS[set]} == bible ]] || MAIN_ARMS=(random mbart veco)
    VARIATION[veco-begun]="--max-update 5"
    for arm in "${!UPDATES[@]}"; do
        UPDATES[$arm]=10
    done
    for task in "${!EPOCHS[@]}"; do
        EPOCHS[$task]=1
    done
}

# require_arm: end unless --arm is pre-trained here, or random.
require_arm() {
    require_number seed pretraining
    [[ ${OPTIONS[arm]} == random || -v UPDATES[${OPTIONS[arm]}] || -v DECODERS[${OPTIONS[arm]}] ]] ||
        die "--arm ${OPTIONS[arm]}: must be one of: $(printf '%s\n' random "${!UPDATES[@]}" "${!DECODERS[@]}" | sort | paste -sd ' ')"
}

# origin ARM: sets ORIGIN, the arm that is pre-trained for it.
origin() {
    ORIGIN=$1
    [[ ! -v DECODERS[$1] ]] || ORIGIN=deep
}

# pretrained_folder ARM SEED: print the name of its checkpoints' folder, which begins with the objective.
pretrained_folder() {
    case $1 in
    *nmt* | mbart* | xlme) printf '%s.s%s' "$1" "$2" ;;
    xlm*) printf 'mlm.%s.s%s' "$1" "$2" ;;
    *) printf 'camlm.%s.s%s' "$1" "$2" ;;
    esac
}

MODEL=(--arch veco_mt_tiny --decoder-layers 3)

# stock_options OPTION...: sets STOCK, these options for fairseq's own models, which have --amp instead of --autocast bf16.
stock_options() {
    local word before=
    STOCK=()
    for word; do
        if [[ $before == --autocast && $word == bf16 ]]; then
            STOCK[-1]=--amp
        else
            STOCK+=("$word")
        fi
        before=$word
    done
}

# pretrain_model ARM SEED OPTION...: pre-train it. All have three layers of 192; nmt and mbart have three more in a decoder, and
# BEGUN_FROM says whose weights they begin with.
pretrain_model() {
    local arm=$1 seed=$2 updates=${UPDATES[$1]} name folder objective=() variation data=() languages START=() pairs=
    name=$(pretrained_folder "$1" "$2") folder=$OUT/checkpoints/$name
    shift 2
    languages=$(IFS=, && printf '%s' "${LANGS[*]}")
    read -ra variation <<<"${VARIATION[$arm]:-}"
    [[ $arm != *-few ]] || pairs=.few
    case $arm in
    *nmt*)
        [[ ! -v BEGUN_FROM[$arm] ]] || start "${BEGUN_FROM[$arm]}" "$seed" "$seed"
        data=("$OUT/mt$pairs" --task veco_multilingual_translation --alpha 0.5 --batch-size 64 --required-batch-size-multiple 1)
        objective=(--criterion label_smoothed_cross_entropy --label-smoothing 0.1) ;;
    mbart*) # Liu et al. (2020), section 2.2
        data=("$OUT/denoising/mono" --task multilingual_denoising --langs "$languages" --add-lang-token
            --multilang-sampling-alpha 0.7 --tokens-per-sample 128 --sample-break-mode complete --max-tokens 2560)
        objective=(--criterion cross_entropy --mask 0.35 --mask-length span-poisson --poisson-lambda 3.5 --replace-length 1
            --permute-sentences 1 --rotate 0) ;;
    *)
        ROOT=$OUT/pretrain$pairs
        [[ $arm != *-mono ]] || ROOT=$OUT/pretrain.mono
        if [[ -v BEGUN_FROM[$arm] ]]; then
            pretrained_model "${BEGUN_FROM[$arm]}" "$seed"
            variation+=(--init-from "$PRETRAINED")
        fi
        pretrain "$OUT" "$name" "$updates" "$seed" --mono-batch-size 8 --mono-max-length 128 --bitext-batch-size 32 \
            --bitext-max-length 64 --max-tokens 16384 --bitext-mask-prob 0.5 --bitext-mask-spread 0.5 "${variation[@]}" \
            --lr "${RATE_OF[$arm]:-$RATE}" --warmup-updates "$WARMUP" --dropout 0 --attention-dropout 0 "$@"
        return ;;
    esac
    stock_options "$@"
    require "${data[0]}" "run $PREPARE first"
    training "pre-training, $name" "$folder" fairseq-train "${data[@]}" --distributed-world-size 1 --user-dir "$USER_DIR" \
        "${objective[@]}" "${MODEL[@]}" "${START[@]}" "${OPTIMIZER[@]}" --lr-scheduler polynomial_decay --lr "${RATE_OF[$arm]:-$RATE}" \
        --warmup-updates "$WARMUP" --total-num-update "$updates" --max-update "$updates" --seed "$seed" "${LOG[@]}" "${OFTEN[@]}" \
        --dropout 0 --attention-dropout 0 --save-dir "$folder" "${variation[@]}" "${STOCK[@]}"
}

# pretrained_model ARM PRETRAINING: sets PRETRAINED to its checkpoint: the last one, and with few pairs that of validation.
pretrained_model() {
    local which=last
    origin "$1"
    [[ -v UPDATES[$ORIGIN] ]] || die "--arm $1: is not pre-trained"
    [[ $ORIGIN != *-few ]] || which=best
    PRETRAINED=$OUT/checkpoints/$(pretrained_folder "$ORIGIN" "$2")/checkpoint_$which.pt
    require "$PRETRAINED" "run train.sh$OF_SET --arm $ORIGIN --seed $2 first"
    tell_unfinished "$PRETRAINED"
}

# start ARM PRETRAINING SEED: sets START, the options of fairseq-train that begin with the pre-trained model, and MODEL. Several
# fine-tunings may begin with it at once: one converts it, and the others wait.
start() {
    local arm=$1 pretraining=$2 seed=$3 model converted new=() layers=3 selection selections lock
    START=()
    [[ $arm != random ]] || return 0
    pretrained_model "$arm" "$pretraining"
    model=$PRETRAINED
    converted=$OUT/converted/$arm.p$pretraining
    make_folder "$OUT/converted"
    exec {lock}>"$OUT/converted/$arm.lock"
    flock "$lock"
    case $arm in
    *nmt*) converted=$model ;;
    mbart*)
        converted+=.pt
        step "conversion, $arm" "$converted" python "$REPOSITORY/data-bin-recipes/evidence/mbart.py" "$model" \
            "$OUT/vocabulary/dict.txt" --langs "$(IFS=, && printf '%s' "${LANGS[*]}")" --output "$converted" ;;
    *)
        if [[ -v DECODERS[$arm] ]]; then
            layers=${DECODERS[$arm]% *} MODEL=(--arch veco_mt_tiny --encoder-layers 6 --decoder-layers "$layers")
            IFS=/ read -ra selections <<<"${DECODERS[$arm]#* }"
            selection=${selections[(seed - 1) % ${#selections[@]}]}
            new=(--layer-selection "$selection")
            ((${#selections[@]} == 1)) || converted+=.s$seed
        fi
        [[ $arm != xlm* ]] || { converted+=.s$seed && new=(--random-cross-attention --seed "$seed"); }
        converted+=.pt
        step "conversion, $arm" "$converted" python "$REPOSITORY/scripts/convert_to_seq2seq.py" --checkpoint "$model" \
            --output "$converted" --decoder-layers "$layers" --dict "$OUT/vocabulary/dict.txt" "${new[@]}" ;;
    esac
    exec {lock}>&-
    START=(--finetune-from-model "$converted")
}

# grid_of ARM DATA: sets GRID, the arm and the data of the grid that this arm's learning rate and dropout come from: of the grids
# that have no more pairs the one with most, and else the first one. The arms with large batches have their own for many pairs.
grid_of() {
    local data
    GRID=("${GRID_OF[$1]:-$1}" "${GRID_DATA[0]}")
    for data in "${GRID_DATA[@]:1}"; do
        ((${data##*.} > ${2##*.})) || GRID[1]=$data
    done
    if ((${2##*.} > 2000)) && [[ " ${LARGE_ARMS[*]} " == *" $1 "* ]]; then GRID[0]=$1; fi
}

# choose: sets --lr and --dropout, where they are not given, to those of the lowest validation loss in the grid; to those in
# --results, where the grid was run elsewhere.
choose() {
    local best
    [[ -z ${OPTIONS[lr]} || -z ${OPTIONS[dropout]} ]] || return 0
    grid_of "${OPTIONS[arm]}" "${OPTIONS[data]}"
    best=$(python "$REPOSITORY/data-bin-recipes/evidence/results.py" "$OUT" best "${GRID[@]}" \
        ${OPTIONS[results]:+--results "${OPTIONS[results]}"}) || exit 1
    : "${OPTIONS[lr]:=${best% *}}" "${OPTIONS[dropout]:=${best#* }}"
}

# run_options -- "$@": read the options of finetune.sh and evaluate.sh; sets RUN, the fine-tuning's name, and TASK, the options of its
# task and of generation's. All arms have the token of the target language.
run_options() {
    parse_options out= set=captions arm=veco data= lr= dropout= seed=1 pretraining=1 results= try "$@"
    choose_out
    comparisons
    : "${OPTIONS[data]:=${SIZES[0]}}"
    [[ ${OPTIONS[data]} =~ ^[^.-]+-[^.-]+\.[1-9][0-9]*$ ]] || die "--data ${OPTIONS[data]}: must be one of: ${SIZES[*]}"
    require_arm
    choose
    of_pair "${OPTIONS[data]%.*}"
    TASK=(--task veco_multilingual_translation --source-lang "$SRC" --target-lang "$TGT")
    RUN=${OPTIONS[arm]}.p${OPTIONS[pretraining]}.${OPTIONS[data]}.lr${OPTIONS[lr]}.dropout${OPTIONS[dropout]}.s${OPTIONS[seed]}
}

# found SET/NAME...: sets FILES to those of --local.
found() {
    local name
    FILES=()
    for name; do
        find_text "${OPTIONS[local]}/${name%/*}" "${name##*/}" "--local needs it"
        FILES+=("$FILE")
    done
}
