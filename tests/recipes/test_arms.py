# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The arms of the evidence: numbers and names that cannot be, and how small a try is."""

from support.modules import load_script
from support.shell import bash

from recipes import RECIPES

figures = load_script(RECIPES / "evidence/figures.py")


def arms(tmp_path, script):
    options = "parse_options out=x arm=veco seed=1 pretraining=1 set= try --"
    return bash(
        tmp_path, f"source '{RECIPES}/lib/arms.sh'\nread_options() {{ {options} $*; choose_out x; comparisons; }}\n{script}"
    )


def test_seeds_of_pretraining_are_numbers(tmp_path):
    calls = "".join(f"(read_options {given}; require_arm) || :\n" for given in ("--seed x", "--pretraining x", "--pretraining 3"))
    told = [line.split(": error: ", 1)[1] for line in arms(tmp_path, calls).stderr.splitlines()]
    assert told == [f"--{name} x: must be a whole number" for name in ("seed", "pretraining")]


def test_a_decoder_has_the_layers_of_its_name(tmp_path):
    """Of six, from below; three choices at random, of which none is another row."""
    script = 'read_options; for arm in "${DEPTHS[@]}"; do echo "$arm ${DECODERS[$arm]}"; done'
    rows = [line.split() for line in arms(tmp_path, script).stdout.splitlines()]
    chosen = {arm: (int(count), layers) for arm, count, layers in rows}
    assert len(rows) == len(chosen) == 12
    named = {arm: of for arm, of in chosen.items() if "random" not in arm}
    assert named == {
        "deep-all-6": (6, "last"), **{f"deep-{which}-{count}": (count, which) for which in ("last", "first") for count in (1, 2, 3)},
        "deep-spread-3": (3, "1,3,5"), "deep-spread-2": (2, "2,5"),
    }  # fmt: skip
    taken = {(0, 1, 2), (3, 4, 5), (0, 1), (4, 5), (0,), (5,), (1, 3, 5), (2, 5)}
    for count in (1, 2, 3):
        number, layers = chosen[f"deep-random-{count}"]
        choices = [tuple(map(int, choice.split(","))) for choice in layers.split("/")]
        assert number == count and len(set(choices)) == 3 and taken.isdisjoint(choices)
        assert all(sorted(set(choice)) == list(choice) and len(choice) == count and choice[-1] < 6 for choice in choices)
    names = {f"deep-{which}-{count}": f"VECO of 6 layers, {which} {count}" for which in ("last", "first") for count in (1, 2, 3)}
    names |= {f"deep-random-{count}": f"VECO of 6 layers, {count} at random" for count in (1, 2, 3)}
    names |= {
        "deep-all-6": "VECO of 6 layers, all",
        "deep-spread-3": "VECO of 6 layers, 3 spread",
        "deep-spread-2": "VECO of 6 layers, 2 spread",
    }
    assert {arm: name for arm, name in figures.ARMS.items() if arm.startswith("deep-")} == names


def test_each_seed_has_the_next_choice_of_random_layers(tmp_path):
    """... of those that the documented results have; the fourth has the first one again."""
    script = """read_options; pretrained_model() { PRETRAINED=x; }; step() { echo "${2#"$OUT/converted/"} ${*: -1}"; }
        for arm in deep-random-{3,2,1} deep-spread-2; do for seed in 1 2 3 4; do start $arm 1 $seed; done; done"""
    told = [line.split() for line in arms(tmp_path, script).stdout.splitlines()]
    choices = {"random-3": ["2,3,4", "0,1,3", "0,3,4"], "random-2": ["2,3", "0,5", "0,2"], "random-1": ["4", "3", "1"]}
    expected = [[f"deep-{arm}.p1.s{seed}.pt", layers[(seed - 1) % 3]] for arm, layers in choices.items() for seed in (1, 2, 3, 4)]
    assert told == expected + [["deep-spread-2.p1.pt", "2,5"]] * 4


def test_an_arm_takes_the_learning_rate_and_dropout_of_the_one_that_it_is_a_kind_of(tmp_path):
    """What is no arm of its own has no grid; with many pairs, those in large batches have their own. 8,000 pairs have a grid, too."""
    script = """read_options; for arm in random "${!UPDATES[@]}" "${DEPTHS[@]}"; do for data in en-de.500 en-de.2000 en-fr.8000 en-cs.29000; do
        grid_of $arm $data; echo "$arm $data ${GRID[*]}"; done; done"""
    rows = [line.split() for line in arms(tmp_path, script).stdout.splitlines()]
    kinds = {
        "veco": "no-bitext-s no-mono-s no-tlm mask-0.15 mask-0.25 mask-0.5 from-xlm veco-8 no-stop-8 veco-long veco-half",
        "xlm": "xlm-updates xlm-8 xlm-updates-8 xlm-long xlm-half", "mbart": "mbart-half", "nmt-few": "nmt-half-few",
        "nmt": "nmt-8 veco-nmt veco-nmt-8 nmt-more-8 nmt-long nmt-half",
        "deep-last-3": "deep-all-6 deep-last-2 deep-last-1 deep-first-3 deep-first-2 deep-first-1 deep-spread-3 deep-spread-2 "
        "deep-random-3 deep-random-2 deep-random-1",
    }  # fmt: skip
    of = {arm: kind for kind, several in kinds.items() for arm in several.split()}
    own = {"veco-8", "nmt-8", "xlm-8"}  # in large batches
    served = {"en-de.500": "en-de.2000", "en-de.2000": "en-de.2000", "en-fr.8000": "en-de.8000", "en-cs.29000": "en-de.29000"}
    for pairs, grid_pairs in served.items():
        assert {arm: grid for arm, data, *grid in rows if data == pairs and grid[0] != arm} == {
            arm: [kind, grid_pairs] for arm, kind in of.items() if grid_pairs == "en-de.2000" or arm not in own
        }
        assert [grid for arm, data, *grid in rows if (arm, data) == ("random", pairs)] == [["random", grid_pairs]]


def test_every_arm_has_a_name_in_the_tables(tmp_path):
    """... but for those that are the origin of others, or of a picture."""
    told = arms(tmp_path, 'read_options; echo random "${!UPDATES[@]}" "${!DECODERS[@]}"').stdout.split()
    assert set(told) - {"deep", "veco-begun"} == set(figures.ARMS)
    assert len(set(figures.ARMS.values())) == len(figures.ARMS)


def test_a_try_of_the_comparisons_is_small(tmp_path):
    """... and the beginning of a training is still less than the whole, of 10 updates."""
    script = 'read_options --try; echo "$VALID $WARMUP ${UPDATES[veco-begun]} ${VARIATION[veco-begun]} ${SEEDS[*]} ${RATES[*]}"'
    assert arms(tmp_path, script).stdout == "20 5 10 --max-update 5 1 2e-3\n"


def test_what_is_missing_is_made_by_a_script_of_the_same_set(tmp_path):
    """... and a folder of another training is left by an option that there is: these scripts have no --name."""
    scripts = {"require_whole x y": "x: is not there: run {0} first", "pretrain_model nmt 1": "x{1}/mt: is not there: run {0} first",
               "pretrained_model veco 2": "/camlm.veco.s2/checkpoint_last.pt: is not there: run train.sh{2} --arm veco --seed 2 first",
               "mkdir -p b; touch b/checkpoint_1_5.pt; same_training b 1 || :; same_training b 2":
               "b: was trained with other options or data: remove it, or choose another --out"}  # fmt: skip
    for options, (prepare, folder, more) in {"": ("prepare.sh", "", ""),
                                             "--set bible": ("prepare_bible.sh", "/bible", " --set bible")}.items():  # fmt: skip
        for script, told in scripts.items():
            said = arms(tmp_path, f"read_options {options}; {script}").stderr
            assert said.endswith(told.format(prepare, folder, more) + "\n"), said
    named = bash(tmp_path, f"source '{RECIPES}/lib/pretraining.sh'\nparse_options out= pretrained= name= try -- --try\n"
                 "same_training() { echo $TRAINED_OTHERWISE; }; same_training; python() { :; }; require_whole() { :; }; OUT=x\n"
                 "step() { :; }; small_model")  # fmt: skip
    lines = [line for line in named.stdout.splitlines() if line.startswith("was trained")]
    assert [line.rpartition("another ")[2] for line in lines] == ["--out or --name", "--out"], named


def test_the_options_for_fairseqs_own_models_keep_their_words(tmp_path):
    """... which have spaces, or are empty."""
    script = """stock_options --cpu --autocast bf16 --adam-betas '(0.9, 0.98)' --post-process '' ; printf '<%s>' "${STOCK[@]}"
        stock_options --autocast fp16 bf16; printf '<%s>' "${STOCK[@]}"; stock_options; echo "${#STOCK[@]}" """
    first = "<--cpu><--amp><--adam-betas><(0.9, 0.98)><--post-process><>"
    assert arms(tmp_path, script).stdout == f"{first}<--autocast><fp16><bf16>0\n"


def test_one_conversion_at_a_time(tmp_path):
    """Fine-tunings that begin with the same model at once; each of another model need not wait."""
    script = """read_options; pretrained_model() { PRETRAINED=x; }; step() { echo "begins $1"; sleep 0.3; echo "ends $1"; }
        start veco 1 1 & start veco 1 2 & wait; echo apart; start veco 1 1 & sleep 0.1; start no-stop 1 1; wait"""
    together, apart = arms(tmp_path, script).stdout.split("apart\n")
    assert together.splitlines() == ["begins conversion, veco", "ends conversion, veco"] * 2
    assert apart.splitlines()[:2] == ["begins conversion, veco", "begins conversion, no-stop"]
