# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Work that is shared out: jobs among processes, a text in parts, and texts and dictionaries of many languages."""

import hashlib
import re
import shlex

import pytest
from conftest import REPOSITORY
from support.sourced import sourced

from recipes.cases import TRANSLATION

LIB = REPOSITORY / "data-bin-recipes/lib"
WORK = 'echo "$4" >>"$2/told"; echo said; echo said >&2\n'  # work.sh --out OUT --name NAME


def run_jobs(folder, script, jobs="a b-1 b-2", needs=None):
    """Jobs of these names after some lines of bash; in order, what ran."""
    (folder / "work.sh").write_text(WORK)
    made = "".join(f"job {name} '{(needs or {}).get(name, '')}' work.sh --name {name}; " for name in jobs.split())
    lock = 'held() { mkdir -p "$OUT/jobs"; exec {other}>"$OUT/jobs/$1.lock"; flock "$other"; }'
    result = sourced(
        folder / "out", f"source {LIB}/jobs.sh; EXTRA=(); {lock}; {made} {script}; run_jobs {shlex.quote(str(folder))}"
    )
    told = folder / "out/told"
    return result, told.read_text().split() if told.exists() else []


def test_the_jobs_of_a_pattern_are_run(tmp_path):
    result, ran = run_jobs(tmp_path, "OPTIONS[only]='b-*'")
    assert (result.returncode, ran) == (0, ["b-1", "b-2"])


def test_a_pattern_without_a_job_is_told(tmp_path):
    """... and is an error, unless it is that of a job that has ended elsewhere."""
    told = "error: --only c-*: no job has such a name: --list alone prints all of them\n"
    for before in ("", "list_jobs;"):
        result, ran = run_jobs(tmp_path, f"OPTIONS[only]='c-*'; {before} :")
        assert (result.returncode, ran, result.stdout) == (1, [], "") and result.stderr.endswith(told)
    assert run_jobs(tmp_path, "OPTIONS[only]='c-*' ENDED[c-5]=1")[0].returncode == 0
    assert "no job" not in run_jobs(tmp_path, "OPTIONS[only]=a")[0].stderr


def test_a_job_waits_for_those_that_it_needs(tmp_path):
    """... while another process is at work on one of them; what needs nothing is run."""
    wait = "sleep() { echo waits; exit 7; }"
    result, ran = run_jobs(tmp_path, f"held a; {wait}", needs={"b-1": "b-2 a"})
    assert (result.returncode, ran, result.stdout.splitlines()[-1]) == (7, ["b-2"], "waits"), result.stderr


def test_what_is_waited_for_is_said_once(tmp_path):
    """... at first a job that --only leaves out, then one that another process has begun."""
    script = """OPTIONS[only]='b-*'; held b-2; waits=0; sleep() { case $((++waits)) in
        2) touch "$OUT/jobs/a.done" ;; 5) touch "$OUT/jobs/b-2.done" ;; esac; }"""
    result, ran = run_jobs(tmp_path, script, needs={"b-1": "a", "b-2": "a"})
    told = [line for line in result.stdout.splitlines() if "another process" in line]
    assert (ran, told) == (["b-1"], ["b-2 waits until another process has run: a", "b-2: another process runs it"]), result.stderr


def test_a_job_that_another_process_has_just_ended_is_not_run_again(tmp_path):
    result, ran = run_jobs(tmp_path, 'flock() { [[ -e $OUT/told ]] || touch "$OUT/jobs/a.done"; }')
    assert (result.returncode, ran) == (0, ["b-1", "b-2"]), result.stderr


def test_a_job_that_goes_on_adds_to_its_log(tmp_path):
    run_jobs(tmp_path, ":")
    (tmp_path / "out/jobs/a.done").unlink()
    result, ran = run_jobs(tmp_path, ":")
    assert ran == ["a", "b-1", "b-2", "a"] and (tmp_path / "out/jobs/a.log").read_text() == "said\n" * 4


def test_a_job_that_is_named_twice_is_listed_once_and_as_it_was_first(tmp_path):
    jobs = "job a '' x.sh --local 'my texts'; job b a y.sh; job a b z.sh; mkdir -p $OUT/jobs; touch $OUT/jobs/a.done"
    show = 'echo "${NEEDS[a]}|"; eval "printf \'%s|\' ${COMMANDS[a]}"'
    result = sourced(tmp_path / "out", f"source {LIB}/jobs.sh; {jobs}; list_jobs; {show}")
    assert result.stdout == "a: ended\nb: to do\n|\nx.sh|--local|my texts|", result.stderr
    result = sourced(tmp_path / "out", f"source {LIB}/jobs.sh; {jobs}; OPTIONS[only]='[b-z]*'; list_jobs")
    assert result.stdout == "b: to do\n", result.stderr


@pytest.mark.parametrize("lines, parts, extra", [(8, [1, 4, 7], "--cpu"), (33, range(1, 34, 3), "--lr 1")])
def test_a_text_is_translated_in_parts_and_put_together_in_order(tmp_path, lines, parts, extra):
    text, out = tmp_path / "text", tmp_path / "out"
    text.write_text("\n".join(f"line {number}" for number in range(lines)))  # the last one without its end
    translate = 'PART=3; python() { echo "$@" >>$OUT/calls; sed "s/^/to /"; }; to_file() { "${@:2}" >$1; }'
    script = f"{translate}; EXTRA=({extra}) DEVICE=(--fp16); translate any model {text} $OUT/made --beam 7"
    result = sourced(out, f"source {LIB}/synthetic.sh; mkdir -p $OUT; {script}")
    assert (out / "made").read_text() == "".join(f"to line {number}\n" for number in range(lines)), result.stderr
    done = [line for line in result.stdout.splitlines() if " makes " in line]
    assert [line.split("]")[0] for line in done] == [*(f"[any, line {part} of {lines}" for part in parts), "[any"]
    cpu = " --cpu" * (extra == "--cpu")
    call = (
        f"{REPOSITORY}/scripts/translate.py model --sentencepiece {out}/vocabulary/sentencepiece.bpe.model --data {out}/mt.en-de"
    )
    assert (out / "calls").read_text() == f"{call} --beam 7{cpu}\n" * len(parts)


@pytest.mark.parametrize("task", TRANSLATION.split())
def test_an_interruption_costs_the_lines_that_the_readme_tells(task):
    (lines,) = re.findall(r"^PART=(\d+) ", (LIB / "synthetic.sh").read_text(), re.MULTILINE)
    assert f"a text is translated {int(lines):,} lines at a time" in (LIB.parent / f"{task}/README.md").read_text(
        encoding="utf-8"
    )


@pytest.mark.parametrize(
    "name, folders", [("", ["distilled", "distilled.s2"]), ("mine", ["distilled.mine", "distilled.mine.s2"])]
)
def test_each_seed_has_its_own_translations(tmp_path, name, folders):
    """... which another seed does not overwrite; those of the first seed are where they were."""
    script = f"""source {LIB}/synthetic.sh; declare -A OPTIONS=([name]={name} [seed]=1)
        for seed in 1 2; do OPTIONS[seed]=$seed; synthetic_folder distilled; echo ${{folder#$OUT/}}; done"""
    assert sourced(tmp_path / "out", script).stdout.split() == folders


def test_an_empty_text_is_not_translated(tmp_path):
    (tmp_path / "text").touch()
    result = sourced(tmp_path / "out", f"source {LIB}/synthetic.sh; DEVICE=(); translate any model {tmp_path}/text made")
    assert result.returncode == 1 and result.stderr.endswith(f"error: {tmp_path}/text: is empty\n")


def test_real_pairs_come_first_and_a_tag_is_taken_as_it_is(tmp_path):
    (tmp_path / "real").write_text("a\n")
    (tmp_path / "made").write_text("b c\nd\n")
    joined = f"source {LIB}/synthetic.sh; cd {tmp_path}; joined 2 real made '<\\n&>'; joined 1 real made; joined 1 none made || echo $?"
    assert sourced(tmp_path / "out", joined).stdout == "a\na\n<\\n&> b c\n<\\n&> d\na\nb c\nd\n1\n"


def test_a_pair_without_text_on_a_side_is_not_trained_on(tmp_path):
    """A blank line of the text, or a translation that came out empty; the others stay beside their translations."""
    (tmp_path / "mono.aa").write_text("<a>\n\nb\n \t\nd \\\ne")
    (tmp_path / "mono.bb").write_text("A\nB\n\r\nC\nD D\n\\E\n")
    script = f"source {LIB}/synthetic.sh; cd {tmp_path}; with_text mono.aa mono.bb; with_text mono.bb mono.aa"
    assert sourced(tmp_path / "out", script).stdout == "<a>\nd \\\ne\nA\nD D\n\\E\n"


def test_back_translations_that_came_out_empty_are_not_trained_on(tmp_path):
    """The real pairs first, then the synthetic ones: the text itself as the target, and what was made of it, with a tag, as the source."""
    out = tmp_path / "out"
    (out / "raw").mkdir(parents=True)
    (tmp_path / "news").write_text("eins\n\nzwei\ndrei\n")
    for lang in ("en", "de"):
        (out / f"raw/train.{lang}").write_text(f"real {lang}\n")
    script = f"""source {LIB}/synthetic.sh
        finetune_task() {{ :; }}; average() {{ CHECKPOINT=any; }}; synthetic_data() {{ :; }}; DEVICE=()
        python() {{ sed 's/^zwei$//; s/^[a-z]/E&/'; }}
        parse_options out= monolingual= name= seed=1 average=1 repeat=1 topk=0 tag='<BT>' try -- \
            --out {out} --monolingual {tmp_path}/news
        backtranslate_task"""
    result = sourced(out, script)
    assert result.returncode == 0, result.stderr
    made = [(out / f"backtranslated/train.{lang}").read_text().splitlines() for lang in ("en", "de")]
    assert made == [["real en", "<BT> Eeins", "<BT> Edrei"], ["real de", "eins", "drei"]]


def test_a_teacher_that_was_trained_further_translates_anew(tmp_path):
    """... and only then, although the mean of its checkpoints is made in each call, as long as its training has not ended."""
    out = tmp_path / "out"
    teacher = out / "checkpoints/finetune.veco.s1"
    pieces, data = out / "vocabulary/sentencepiece.bpe.model", out / "mt.en-de/dict.de.txt"
    for path in (teacher / "checkpoint_1_10.pt", out / "raw/train.en", pieces, data):
        path.parent.mkdir(parents=True)
        path.write_text("a line\n")
    script = f"""source {LIB}/synthetic.sh
        python() {{ [[ $* == *average_checkpoints.py* ]] && echo $MEAN >"${{@: -1}}" || cat; }}
        choose_device() {{ DEVICE=(); }}; synthetic_data() {{ :; }}; finetune_task() {{ :; }}
        parse_options out= teacher= arm=veco name= seed=1 average=1 try -- --out {out}; distill_task"""
    for mean, done, made in ((1, False, 1 + 5), (1, False, 1), (2, False, 1 + 4), (2, True, 1), (2, True, 0)):
        if done:
            teacher.with_name(f"{teacher.name}.done").write_text("by finetune.sh")
        assert sourced(out, f"MEAN={mean}; {script}").stdout.count(" done in ") == made, (mean, done)


def test_a_score_of_another_mean_leaves_the_teacher_as_it_is(tmp_path):
    """... between two parts of its translations: a mean of other checkpoints has its own file."""
    out = tmp_path / "out"
    for name in ("checkpoints/finetune.veco.s1/checkpoint_1_10.pt", "checkpoints/finetune.veco.s1/checkpoint_1_20.pt",
                 "checkpoints/finetune.veco.s1.done", "raw/train.en", "mt.en-de/dict.de.txt"):  # fmt: skip
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text("a line\nanother\n")
    script = f"""source {LIB}/synthetic.sh; PART=1
        python() {{
            if [[ $* == *average_checkpoints.py* ]]; then echo "by the mean of $5" >"${{@: -1}}"; return; fi
            cat "$2"; (REMAKE='' && average finetune.veco.s1 1 >/dev/null)
        }}
        choose_device() {{ DEVICE=(); }}; synthetic_data() {{ :; }}; finetune_task() {{ :; }}
        parse_options out= teacher= arm=veco name= seed=1 average=2 try -- --out {out}; distill_task"""
    result = sourced(out, script)
    assert (out / "distilled/taught.de").read_text() == "by the mean of 2\n" * 2, result.stderr


def test_scores_of_other_options_that_are_replaced_are_told(tmp_path):
    """A step's words tell; without scores there is nothing to lose."""
    (tmp_path / "a.json").touch()
    script = f"""cd {tmp_path}; step any a.out touch a.out; tell_replaced m a.out a.json touch a.out; tell_replaced m a.out b.json true
        tell_replaced m a.out a.json touch a.out --more"""
    told = "[translation, m] replaces that of another model or options: to keep its scores, copy a.json now"
    assert sourced(tmp_path / "out", script).stdout.splitlines()[2:] == [told]


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_text_that_is_not_utf_8_is_not_cut_off(tmp_path, locale):
    """... without a word: veco prepare refuses it, and tells where it is."""
    (tmp_path / "verses").write_bytes(b"a\n\n\xe9\n\nb\n")
    (tmp_path / "more").write_bytes(b"\xe9\n\nc\n")
    result = sourced(tmp_path / "out", f"export LC_ALL={locale}; cd {tmp_path}; side 0 verses more >made")
    assert result.stderr == "" and (tmp_path / "made").read_bytes() == b"a\n\xe9\nb\n\xe9\n\nc\n"


def test_other_data_of_a_pair_are_put_together_anew(tmp_path):
    """... and a training on them is another one, also if the data were made in an earlier call."""
    out = tmp_path / "out"
    script = f"source {LIB}/many.sh; PAIRS=(en-de en-fr); all_pairs all; identity x $OUT/mt"

    def made(pair, vocabulary):
        (out / f"mt.{pair}").mkdir(parents=True, exist_ok=True)
        (out / f"mt.{pair}/train.{pair}.bin").write_text(vocabulary)
        (out / f"mt.{pair}.done").write_text(f"binarize {vocabulary}")

    for pair in ("en-de", "en-fr"):
        made(pair, "first")
    told = [sourced(out, script).stdout.splitlines() for _ in range(2)]
    assert "done in" in told[0][1] and "already there" in told[1][0] and told[0][-1] == told[1][-1]
    made("en-fr", "second")
    told.append(sourced(out, script).stdout.splitlines())
    assert "done in" in told[2][1] and told[2][-1] != told[1][-1]
    assert (out / "mt/train.en-fr.bin").read_text() == "second"


def test_a_dictionary_gets_a_token_for_each_language(tmp_path):
    root = tmp_path / "out/pretrain"
    root.mkdir(parents=True)
    (root / "dict.txt").write_text("a 9\n")
    (root / "sentencepiece.bpe.model").write_text("pieces")
    (root / "other").touch()
    assert sourced(tmp_path / "out", f"source {LIB}/many.sh; tokens {root} {tmp_path}/made en de").returncode == 0
    assert {path.name: path.read_text() for path in (tmp_path / "made").iterdir()} == {
        "dict.txt": "a 9\n<2en> 1\n<2de> 1\n", "sentencepiece.bpe.model": "pieces",
    }  # fmt: skip


def test_the_data_of_all_pairs_are_in_one_folder(tmp_path):
    for pair in ("en-de", "en-fr", "de-fr"):
        folder = tmp_path / f"mt.{pair}"
        folder.mkdir()
        (folder / f"train.{pair}.bin").write_text(pair)
        (folder / "dict.en.txt").write_text("the same")
    result = sourced(
        tmp_path,
        f"source {LIB}/many.sh; together {tmp_path}/mt $OUT/mt.en-{{de,fr}}; together {tmp_path}/none $OUT/mt.en-nl || echo $?",
    )
    made = {path.name: path for path in (tmp_path / "mt").iterdir()}
    assert {name: path.read_text() for name, path in made.items()} == {
        "train.en-de.bin": "en-de", "train.en-fr.bin": "en-fr", "dict.en.txt": "the same",
    }  # fmt: skip
    assert made["train.en-de.bin"].samefile(tmp_path / "mt.en-de/train.en-de.bin") and result.stdout.endswith("1\n")


@pytest.mark.parametrize("lines, kept", [(0, "a\nb\n"), (1, "a\n"), (2, "a\nb\n"), (3, "a\nb\n")])
def test_captions_are_checked_as_a_whole_before_some_are_taken(tmp_path, lines, kept):
    (tmp_path / "val.en").write_text("a\nb\n")
    script = f"""source {LIB}/multi30k.sh; LANGS=(en de); cd {tmp_path}; OPTIONS[local]=.
        MULTI30K_CHECKSUMS=$(sha256sum val.en; echo 0 val.de); fetch val.en made {lines}"""
    script = script.replace("sha256sum val.en", "sha256sum val.en | tr -s ' '")
    assert sourced(tmp_path / "out", script).stderr == "" and (tmp_path / "made").read_text() == kept


def test_the_captions_are_those_that_were_published():
    """Who changes a checksum has compared it with the text's, and puts the new sum here: all tests take their texts from the list."""
    sums = re.findall(r"^[0-9a-f]{64} .+\n", (LIB / "multi30k.sh").read_text(), re.MULTILINE)
    assert (len(sums), hashlib.sha256("".join(sums).encode()).hexdigest()[:12]) == (12, "a2c82499786a")


def test_captions_that_cannot_be_downloaded(tmp_path):
    """... whole: the end of curl counts, and not that of gzip, which got a part."""
    script = "curl() { echo part | gzip; return 22; }; OPTIONS[local]=; fetch val.en made 0"
    result = sourced(tmp_path / "out", f"source {LIB}/multi30k.sh; cd {tmp_path}; {script}")
    name = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw/val.en.gz"
    told = f"error: {name}: cannot be downloaded: try again, or get the files in another way and give --local DIR\n"
    assert result.returncode == 1 and result.stderr.endswith(told)


def test_checkpoints_are_found_in_a_folder_whose_name_is_a_pattern(tmp_path):
    folder = tmp_path / "runs [1]*/checkpoints/run"
    folder.mkdir(parents=True)
    for name in ("1_10", "2_20", "last"):
        (folder / f"checkpoint_{name}.pt").touch()
    script = f"OUT='{tmp_path}/runs [1]*'; python() {{ touch \"${{@: -1}}\"; }}; average run 2; echo $CHECKPOINT"
    assert sourced(tmp_path / "out", script).stdout.endswith("/checkpoints/run.average2.pt\n")


def test_a_mean_of_as_many_checkpoints_as_were_asked_for_says_nothing(tmp_path):
    folder = tmp_path / "checkpoints/run"
    folder.mkdir(parents=True)
    for name in ("1_10", "2_20", "best", "last"):
        (folder / f"checkpoint_{name}.pt").touch()
    told = sourced(tmp_path, 'python() { echo "$@"; touch $OUT/checkpoints/run.average2.pt; }; average run 2').stdout
    assert "not 2" not in told and f"--num-update-checkpoints 2 --output {tmp_path}/checkpoints/run.average2.pt\n" in told
