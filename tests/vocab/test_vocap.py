# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""VoCap: ALP, sizes, allocation and union by hand, and the command on generated and real text."""

import gzip
import itertools
import json
import math
import random
import shutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import sentencepiece
from conftest import error_line
from sentencepiece import sentencepiece_model_pb2

from veco_fairseq.data.sentencepiece import load_sentencepiece, train_sentencepiece
from veco_fairseq.errors import UserError
from veco_fairseq.vocab import sizes
from veco_fairseq.vocab.allocation import allocate, sampling_probabilities
from veco_fairseq.vocab.alp import Words, average_log_probability, count_pieces, without_normaliser, words_of
from veco_fairseq.vocab.corpora import drawn, find_corpora, sample
from veco_fairseq.vocab.sizes import META, Vocabularies, all_sizes, shrink
from veco_fairseq.vocab.union import union_model
from veco_fairseq.vocab.vocap import Options, make_vocabulary

SPACE = "\u2581"


def proto_of(serialised: bytes) -> sentencepiece_model_pb2.ModelProto:
    return sentencepiece_model_pb2.ModelProto.FromString(serialised)


def processor_of(serialised: bytes) -> sentencepiece.SentencePieceProcessor:
    return sentencepiece.SentencePieceProcessor(model_proto=serialised)


def text(seed: int, lines: int = 400, letters: str = "abcdefgh"):
    """Lines of words that come from a list of them, the first ones more often."""
    rng = random.Random(seed)
    words = ["".join(rng.choices(letters, k=rng.randint(2, 8))) for _ in range(300)]
    weights = [1 / rank for rank in range(1, 301)]
    return [" ".join(rng.choices(words, weights, k=rng.randint(3, 9))) for _ in range(lines)]


def hand_made(pieces):
    """A model of these pieces and log probabilities."""
    model = proto_of(train_sentencepiece(text(1, 400), 100, character_coverage=1.0))
    del model.pieces[META:]
    for piece, score in pieces.items():
        model.pieces.add(piece=piece, score=score, type=1)
    return model


def test_alp_by_hand():
    """Two sentences, "ab a" and "b": pieces _ab, _a and _ b, four of them, of which each is one."""
    model = hand_made({SPACE: -2.0, SPACE + "a": -1.5, SPACE + "ab": -2.0, "a": -3.0, "b": -3.0})
    words = words_of(["ab a", "", "b"], sentencepiece.SentencePieceProcessor(model_proto=model.SerializeToString()))
    assert (words.texts, words.counts.tolist(), words.sentences) == ([SPACE + w for w in ("a", "ab", "b")], [1] * 3, 2)
    counts = count_pieces(words, without_normaliser(model))
    assert counts.tolist() == [0, 0, 0, 1, 1, 1, 0, 1]
    assert average_log_probability(counts, 2) == pytest.approx(4 * math.log(1 / 4) / 2)
    # Three pieces, of which one makes two: sentence 1 is (x, x), sentence 2 is y.
    assert average_log_probability(np.array([2, 1]), 2) == pytest.approx((2 * math.log(2 / 3) + math.log(1 / 3)) / 2)


def test_counting_words_is_counting_sentences():
    lines = [*text(1), "  ａｂ\u3000cd  ef ", "half…way ① \u00a0ab", " ", "zzz?"]  # NFKC makes spaces and letters of some
    processor = sentencepiece.SentencePieceProcessor(model_proto=train_sentencepiece(text(1), 120, character_coverage=1.0))
    words = words_of(lines, processor)
    counts = count_pieces(words, without_normaliser(proto_of(processor.serialized_model_proto())))
    by_sentence = np.bincount(np.concatenate(processor.encode(lines)).astype(int), minlength=len(processor))
    assert counts[1 : len(processor)].tolist() == by_sentence[1:].tolist()
    assert counts[len(processor) :].sum() == 11  # l, w, y, three dots, 1, three z and ?, which the model has no letter for
    assert words.sentences == len(lines) - 1


def test_worth_of_a_piece_by_hand():
    """_ab stands for (_, a, b) 5 times; without it they would be 15, 11 and 13 of 34 + 2 * 5 pieces instead."""
    pieces = {SPACE: -2.0, "a": -2.2, "b": -2.1, SPACE + "ab": -2.5, SPACE + "ba": -9.0}
    model, counts = hand_made(pieces), np.array([0, 0, 0, 10, 6, 8, 5, 5])
    total, instead = 34, 34 + 2 * 5
    expected = 5 * (math.log(5 / total) - sum(math.log(n / instead) for n in (15, 11, 13)))
    # _ba is not even its own best segmentation: nothing is lost with it. Characters are beyond price.
    assert sizes._worth(model, counts).tolist() == pytest.approx([math.inf] * 3 + [expected, 0])


def test_sizes_are_nested_and_lose_the_least_at_each_step():
    lines = text(1)
    model, found = all_sizes(lines, 1000, largest=300, step=50, coverage=1.0)
    most = len(proto_of(model).pieces) - META
    assert found.sizes == [50, 100, 150, 200, 250, most] and found.instances == 1000
    vocabularies = [found.of_size(size) for size in found.sizes]
    assert [len(vocabulary) for vocabulary in vocabularies] == found.sizes
    assert all(small.keys() < large.keys() for small, large in itertools.pairwise(vocabularies))
    assert set("abcdefgh") <= vocabularies[0].keys()
    assert (np.diff(found.alp) > 0).all()
    # Against a model trained for each size, as the paper does it.
    _, every = all_sizes(lines, 1000, largest=300, step=50, coverage=1.0, every_size=True)
    assert every.sizes == found.sizes
    assert found.alp == pytest.approx(every.alp, rel=0.02)
    assert {**found.words.__dict__, "counts": None} == {**words_of(lines, processor_of(model)).__dict__, "counts": None}


def test_what_is_dropped_is_worth_less_than_other_pieces(monkeypatch):
    lines = text(1)
    model = proto_of(train_sentencepiece(lines, 300 + META, character_coverage=1.0, at_most=True))
    words = words_of(lines, processor_of(model.SerializeToString()))
    counts = count_pieces(words, without_normaliser(model))
    small, of_small = shrink(model, counts, words, 150)
    assert of_small.sum() > counts.sum() and len(small.pieces) == 150 + META
    rng = np.random.default_rng(1)
    monkeypatch.setattr(sizes, "_worth", lambda model, counts: np.array(
        [np.inf if len(piece.piece) == 1 else rng.random() for piece in model.pieces[META:]]))  # fmt: skip
    _, at_random = shrink(model, counts, words, 150)
    assert average_log_probability(of_small, words.sentences) > 0.9 * average_log_probability(at_random, words.sentences)


def test_characters_of_lines_that_the_trainer_leaves_out_are_there():
    """It takes no line with its own marks, such as a literal <unk>; and a very long line is a line like others."""
    model, found = all_sizes([*text(1), "<unk> §", "жук " * 3000], 1, largest=100, step=50, coverage=1.0)
    assert set("§жук<>") <= found.of_size(50).keys()
    processor = processor_of(model)
    assert processor.unk_id() not in processor.encode("§ жук")


def test_what_a_vocabulary_cannot_spell_does_not_make_it_better():
    greek = text(4, letters="αβγδεζη")
    own, other = (train_sentencepiece(lines, 60, character_coverage=1.0) for lines in (greek, text(1)))
    alp = {}
    for name, model in (("own", own), ("other", other)):
        words = words_of(greek, processor_of(model))
        alp[name] = average_log_probability(count_pieces(words, without_normaliser(proto_of(model))), words.sentences)
    assert alp["own"] > alp["other"]
    # A space and two characters that it lacks, one of them twice: four pieces.
    words = words_of(["ηξ", "ξ"], processor_of(other))
    counts = count_pieces(words, without_normaliser(proto_of(other)))
    assert sorted(counts[counts > 0].tolist()) == [1, 2, 2]


def test_saved_vocabularies_are_the_same_and_damaged_ones_are_told(tmp_path):
    _, found = all_sizes(text(1), 7, largest=120, step=50, coverage=1.0)
    found.save(tmp_path / "x.npz")
    again = Vocabularies.load(tmp_path / "x.npz")
    assert (again.pieces, again.sizes, again.instances) == (found.pieces, found.sizes, 7)
    assert np.array_equal(again.scores, found.scores, equal_nan=True) and np.array_equal(again.alp, found.alp)
    whole = (tmp_path / "x.npz").read_bytes()
    for spoilt in (whole[:200], whole[:100] + bytes(byte ^ 0x55 for byte in whole[100:300]) + whole[300:]):
        (tmp_path / "x.npz").write_bytes(spoilt)
        with pytest.raises(UserError, match="x.npz: damaged: remove it, and run the command again"):
            Vocabularies.load(tmp_path / "x.npz")


def test_too_many_characters_for_the_largest_size():
    with pytest.raises(UserError, match="--largest 5: fewer than the text has characters"):
        all_sizes(text(1), 1, largest=5, step=1, coverage=1.0)


def made_up(name: str, alp, step: int = 2, instances: int = 100, shared=()) -> Vocabularies:
    """Vocabularies of ``step``, 2 ``step``, ... pieces: those shared, then the language's own."""
    steps = [step * (place + 1) for place in range(len(alp))]
    pieces = [*shared, *(f"{name}{number:02}" for number in range(steps[-1] - len(shared)))]
    scores = np.full((len(steps), len(pieces)), np.nan, dtype=np.float32)
    for place, size in enumerate(steps):
        scores[place, :size] = -np.arange(1, size + 1)
    return Vocabularies(pieces, steps, scores, np.array(alp, dtype=float), instances, Words([], np.array([]), 0))


def test_sampling_probabilities_by_hand():
    found = sampling_probabilities({"a": 100, "b": 25}, 0.5)
    assert found == {"a": pytest.approx(10 / 15), "b": pytest.approx(5 / 15)}


@pytest.mark.parametrize("total", range(6, 24, 2))
@pytest.mark.parametrize("beta", [0.0, 0.7])
def test_allocation_is_the_best_of_all(total, beta):
    """Against every choice of sizes whose union has as many pieces (equation 2): the gains become smaller with size."""
    languages = {
        "aa": made_up("a", [-50, -30, -22, -19, -18], instances=400),
        "bb": made_up("b", [-60, -35, -25, -21, -19.5], instances=100),
        "cc": made_up("c", [-40, -28.1, -24.3, -22.9, -22.2], instances=25),
    }
    q = sampling_probabilities({name: of.instances for name, of in languages.items()}, 0.7)
    best, best_score = None, -math.inf
    for places in itertools.product(range(5), repeat=3):
        chosen = {name: of.sizes[place] for (name, of), place in zip(languages.items(), places)}
        score = sum(q[name] ** beta * of.alp[place] for (name, of), place in zip(languages.items(), places))
        if sum(chosen.values()) == total and score > best_score:
            best, best_score = chosen, score
    found = allocate(languages, total, 0.7, beta)
    assert found.sizes == best
    assert len(found.pieces) == total and found.clipped == 0


def test_the_union_is_what_reaches_the_size_and_its_last_pieces_are_clipped():
    languages = {
        "aa": made_up("a", [-9, -5, -4], step=4, shared=("x", "yy", "zz")),
        "bb": made_up("b", [-9, -6, -5.5], step=4, shared=("x", "yy", "zz")),
    }
    # First 4 each, of which 3 are the same: 5. Then aa's next 4, of which the least probable does not fit.
    found = allocate(languages, 8, 0.7, 0.7)
    assert found.sizes == {"aa": 8, "bb": 4} and found.clipped == 1
    assert found.pieces == {"x", "yy", "zz", "a00", "b00", "a01", "a02", "a03"}
    # All of both are 3 + 9 + 9.
    assert len(allocate(languages, 100, 0.7, 0.7).pieces) == 21
    with pytest.raises(UserError, match="--size 6: too few: the smallest vocabularies of 1 of 2 languages alone have 7"):
        allocate(languages, 3, 0.7, 0.7)


def test_characters_are_not_clipped():
    of = made_up("a", [-9, -5], step=2)
    of.pieces[3] = "q"  # the least probable
    assert allocate({"aa": of}, 3, 0.7, 0.7).pieces == {"a00", "a01", "q"}


def test_union_mixes_probabilities_and_is_a_model():
    like = train_sentencepiece(text(1, 400), 100, character_coverage=1.0)
    scores = {"aa": {SPACE + "a": math.log(0.5), "b": math.log(0.5)}, "bb": {"b": math.log(0.1), "c": math.log(0.9)}}
    model = union_model([SPACE + "a", "b", "c"], scores, {"aa": 0.8, "bb": 0.2}, like)
    pieces = [(piece.piece, pytest.approx(piece.score, rel=1e-6)) for piece in proto_of(model).pieces[META:]]
    assert pieces == [("b", math.log(0.42)), (SPACE + "a", math.log(0.4)), ("c", math.log(0.18))]
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    assert processor.encode("abc", out_type=str) == [SPACE + "a", "b", "c"]
    assert [processor.id_to_piece(i) for i in range(META)] == ["<unk>", "<s>", "</s>"]


@pytest.fixture
def corpora(tmp_path):
    """Three languages, one of them in two files, one with other letters."""
    folder = tmp_path / "corpora"
    folder.mkdir()
    (folder / "aa.txt").write_text("\n".join(text(1)) + "\n", encoding="utf-8")
    (folder / "news.bb").write_text("\n".join(text(2)) + "\n\n", encoding="utf-8")
    with gzip.open(folder / "web.bb.gz", "wt", encoding="utf-8") as stream:
        stream.write("\n".join(text(3)) + "\n")
    (folder / "cc.txt").write_text("\n".join(text(4, lines=60, letters="αβγδεζη")) + "\n", encoding="utf-8")
    return folder


def test_corpora_by_name_and_sampled_evenly(corpora):
    found = find_corpora([str(corpora), f"dd={corpora / 'aa.txt'}"])
    names = {language: [path.name for path in paths] for language, paths in found.items()}
    assert names == {"aa": ["aa.txt"], "bb": ["news.bb", "web.bb.gz"], "cc": ["cc.txt"], "dd": ["aa.txt"]}
    lines, instances = sample(found["bb"], 8)
    everything = [*text(2), *text(3)]
    assert instances == 800 and lines == everything[99::100]


VOCAP = "--largest 200 --step 40 --workers 1".split()


def test_command_makes_a_vocabulary_and_keeps_every_stage(corpora, run, drawn, tmp_path):
    def vocap(*options):
        return run("scripts/vocap.py", "--corpora", corpora, "--output", tmp_path / "out", *VOCAP, *options)

    first = vocap("--size", "260", "--joint")
    assert first.returncode == 0, first.stderr
    assert "bb (" in first.stdout and "260 in the union" in first.stdout
    out = tmp_path / "out"
    processor = load_sentencepiece(out / "sentencepiece.bpe.model")
    assert len(processor) == 260 == len(load_sentencepiece(out / "joint/sentencepiece.bpe.model"))
    assert len((out / "dict.txt").read_text("utf-8").splitlines()) == 257
    for name in ("aa.txt", "cc.txt"):
        for line in (corpora / name).read_text("utf-8").splitlines():
            assert processor.unk_id() not in processor.encode(line) and processor.decode(processor.encode(line)) == line
    table = [line.split("\t") for line in (out / "allocation.tsv").read_text().splitlines()]
    assert first.stdout.endswith((out / "allocation.tsv").read_text())
    assert table[0] == ["language", "instances", "q", "largest", "size", "alp", "alp_in_union"]
    allocated = {row[0]: int(row[4]) for row in table[1:]}
    assert {row[0]: int(row[1]) for row in table[1:]} == {"aa": 400, "bb": 800, "cc": 60}
    assert allocated["bb"] >= allocated["cc"] and list(allocated.values()) == sorted(allocated.values(), reverse=True)
    gains = [line.split("\t") for line in (out / "languages/cc.tsv").read_text().splitlines()]
    assert gains[0] == ["size", "alp", "gain"] and gains[1][2] == "inf" and [row[0] for row in gains[1:4]] == ["40", "80", "96"]
    assert float(gains[2][2]) == pytest.approx(float(gains[2][1]) - float(gains[1][1]), abs=0.002)
    (out / "allocation.png").unlink()
    (axes,) = drawn("scripts/vocap.py", "--corpora", corpora, "--output", out, *VOCAP, "--size", "260")
    assert [label.get_text() for label in axes.get_xticklabels()] == list(allocated)
    assert [bar.get_height() for bar in axes.containers[0]] == pytest.approx([size / 1000 for size in allocated.values()])

    again = vocap("--size", "260")
    assert again.stdout.count("already there") == 4
    # A stage is made anew when its text or its file is another one; another size needs the union alone.
    (out / "languages/cc.npz").unlink()
    with open(corpora / "aa.txt", "a", encoding="utf-8") as stream:
        stream.write("abc\n")
    other = vocap("--size", "300")
    assert "bb: already there" in other.stdout and "aa (" in other.stdout and "cc (" in other.stdout
    assert len(load_sentencepiece(out / "sentencepiece.bpe.model")) == 300

    measured = run("scripts/vocap.py", "--corpora", corpora, "--output", out, "--alp",
                   f"joint={out}/joint/sentencepiece.bpe.model", f"vocap={out}/sentencepiece.bpe.model")  # fmt: skip
    assert measured.returncode == 0, measured.stderr
    rows = [line.split("\t") for line in measured.stdout.splitlines()]
    assert rows[0] == ["language", "joint", "vocap"] and [row[0] for row in rows[1:]] == ["aa", "bb", "cc"]
    in_table = dict(line.split("\t")[::6] for line in (out / "allocation.tsv").read_text().splitlines()[1:])
    assert {row[0]: row[2] for row in rows[1:]} == in_table
    assert (out / "alp.tsv").read_text() == measured.stdout and (out / "alp.png").exists()

    # Pre-training's data is made with it as with any other vocabulary.
    root = run("scripts/prepare_root.py", "--mono", f"aa={corpora}/aa.txt", "--valid-lines", "9",
               "--sentencepiece", out / "sentencepiece.bpe.model", "--dict", out / "dict.txt", "--output",
               tmp_path / "root")  # fmt: skip
    assert root.returncode == 0 and "0.000" in root.stdout


def test_interrupted_work_goes_on(corpora, tmp_path, monkeypatch):
    """A run that ends after its first language does not begin with it again."""
    options = Options(find_corpora([str(corpora)]), tmp_path / "out", 260, largest=200, step=40, workers=1)
    said = []

    def interrupt(message):
        said.append(message)
        if "(1 of 3)" in message:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_vocabulary(options, interrupt)
    done = json.loads((tmp_path / "out/vocap.json").read_text())["steps"]
    assert len(done) == 1 and not (tmp_path / "out/dict.txt").exists()
    said.clear()
    make_vocabulary(options, said.append)
    assert [message.split(",")[0] for message in said if "already" in message] == [f"{next(iter(done))}: already there"]


def test_a_language_that_fails_does_not_take_the_others_with_it(corpora, tmp_path):
    (corpora / "zz.txt").write_bytes(b"abc\n\xff\n")
    options = Options(find_corpora([str(corpora)]), tmp_path / "out", 260, largest=200, step=40, workers=2)
    with pytest.raises(UserError, match="zz.txt, line 2: not UTF-8"):
        make_vocabulary(options, lambda message: None)
    done = set(json.loads((tmp_path / "out/vocap.json").read_text())["steps"])
    (corpora / "zz.txt").write_text("abc\n")
    said = []
    make_vocabulary(replace(options, workers=1), said.append)
    assert done and {message.split(":")[0] for message in said if "already there" in message} == done


def test_processes_do_not_need_the_threads_of_this_one(tmp_path):
    """SentencePiece sorts 64 kB and more in OpenMP's threads: a fork misses those of its parent, and was killed."""
    rng = random.Random(1)
    for language in ("aa", "bb"):
        lines = [" ".join("".join(rng.choices("abcdefgh", k=9)) for _ in range(9)) for _ in range(1000)]
        (tmp_path / f"{language}.txt").write_text("\n".join(lines) + "\n")
    train_sentencepiece(lines, 100, character_coverage=1.0)
    options = Options(find_corpora([str(tmp_path)]), tmp_path / "out", 200, largest=160, step=40, workers=2)
    make_vocabulary(options, lambda message: None)
    assert len(load_sentencepiece(tmp_path / "out/sentencepiece.bpe.model")) == 200


def test_a_data_root_is_nobodys_output(corpora, run, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/dict.txt").write_text("a 1\n")
    refused = run("scripts/vocap.py", "--corpora", corpora, "--output", tmp_path / "out", *VOCAP, "--size", "260")
    assert "holds a dict.txt that this command did not make" in error_line(refused)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["dict.txt"]


@pytest.mark.parametrize(
    ("spoil", "options", "message"),
    [
        (None, ["--corpora", "nowhere"], "--corpora nowhere: no such folder, and not of the form LANG=FILE"),
        (None, ["--corpora", "en=nowhere"], "--corpora en=nowhere: nowhere: no such file"),
        (None, ["--size", "20"], "--size 20: too few: the smallest vocabularies of"),
        (None, ["--size", "0"], "--size 0: must be at least 1"),
        (None, ["--step", "300"], "--step 300: must be at most --largest 200"),
        (None, ["--alpha", "-1"], "--alpha -1: must be at least 0"),
        (lambda f: (f / "aa.txt").write_bytes(b"abc\n\xff\xfe\n"), [], "aa.txt, line 2: not UTF-8"),
        (lambda f: (f / "aa.txt").write_text("\n \n"), [], "aa.txt: no text in it"),
        (lambda f: (f / "x-y").write_text("abc"), [], "x-y: its name tells no language: call it LANG.txt or NAME.LANG"),
        (lambda f: shutil.rmtree(f) or f.mkdir(), [], "holds no file"),
        (lambda f: (f / "aa.txt.gz").write_text("abc"), [], "has aa.txt.gz and aa.txt: remove one of them"),
        (None, ["--corpora", "en=tests"], "--corpora en=tests: tests: is a folder"),
        (None, ["--alp", "x", "--lines", "0"], "--lines 0: must be at least 1"),
        (None, ["--alp", "nowhere.model"], "nowhere.model: no such file"),
    ],
    ids=[
        "folder",
        "file",
        "size",
        "zero",
        "step",
        "alpha",
        "encoding",
        "empty",
        "name",
        "no file",
        "twice",
        "is a folder",
        "lines",
        "model",
    ],
)
def test_bad_input_ends_in_one_line(corpora, run, tmp_path, spoil, options, message):
    if spoil:
        spoil(corpora)
    arguments = ["--corpora", corpora, "--size", "260", "--output", tmp_path / "out", *VOCAP, *options]
    assert message in error_line(run("scripts/vocap.py", *arguments))
    assert not (tmp_path / "out/dict.txt").exists()


LANGUAGES = {
    "bible": "en de fr es ru zh cs mi tl", "bible_nt_lowres": "sw eu",
}  # fmt: skip


def real_corpora(data, most: int):
    """The Bible's training text of each language, every n-th line, as lists of lines."""
    found = {}
    for folder, languages in LANGUAGES.items():
        for language in languages.split():
            with gzip.open(data / folder / f"train.{language}.gz", "rt", encoding="utf-8", newline="\n") as stream:
                lines = [line.rstrip("\n") for line in stream if line.strip()]
            found[language] = lines[:: max(1, len(lines) // most)]
    return found


def lines_of_data(data):
    """Every line of every text in the data, tables and question files as they are."""
    for path in sorted(data.rglob("*.gz")):
        with gzip.open(path, "rt", encoding="utf-8", newline="\n") as stream:
            for line in stream:
                yield line.rstrip("\n")


def check_round_trip(processor, lines, characters) -> int:
    """Decoding gives the normalised line back; unknown is only what the corpora did not have."""
    count = 0
    while batch := list(itertools.islice(lines, 4096)):
        encoded = processor.encode(batch)
        for line, ids, restored in zip(batch, encoded, processor.decode(encoded)):
            count += 1
            if processor.unk_id() in ids:
                pieces = processor.encode(line, return_type="proto").pieces
                unknown = "".join(piece.piece for piece in pieces if piece.id == processor.unk_id())
                assert not set(unknown) & characters, line
            else:
                assert restored == processor.normalize(line).replace(SPACE, " ").strip(), line
    return count


def test_real_text_round_trips(shared_data, tmp_path):
    texts = real_corpora(shared_data, 500)
    for language, lines in texts.items():
        (tmp_path / f"{language}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    options = Options(find_corpora([str(tmp_path)]), tmp_path / "out", 9000, largest=3000, step=500)
    make_vocabulary(options, lambda message: None)
    processor = load_sentencepiece(tmp_path / "out/sentencepiece.bpe.model")
    assert len(processor) == 9000
    characters = {c for lines in texts.values() for line in lines for c in processor.normalize(line)}
    assert check_round_trip(processor, itertools.islice(lines_of_data(shared_data), 0, None, 40), characters) > 20_000


@pytest.mark.slow
def test_all_real_text_round_trips(shared_data, tmp_path):
    """Every line of every file, with a vocabulary of every 20th and of those that have a character for the first time."""
    characters = set()
    with open(tmp_path / "all.txt", "w", encoding="utf-8", newline="\n") as stream:
        for number, line in enumerate(lines_of_data(shared_data)):
            if number % 20 == 0 or not set(line) <= characters:
                characters |= set(line)
                stream.write(line + "\n")
    options = Options({"all": [tmp_path / "all.txt"]}, tmp_path / "out", 20_003, largest=20_000, step=20_000)
    make_vocabulary(options, print)
    processor = load_sentencepiece(tmp_path / "out/sentencepiece.bpe.model")
    of_corpus = {c for line in open(tmp_path / "all.txt", encoding="utf-8", newline="\n") for c in processor.normalize(line)}
    count = check_round_trip(processor, lines_of_data(shared_data), of_corpus)
    print(f"{count:,} lines, {len(of_corpus):,} characters")
    assert count > 500_000


def test_pieces_that_a_larger_vocabulary_drops_are_not_in_the_union():
    of_size = {2: {"a": -1.0, "bb": -2.0}, 4: {"a": -1.0, "cc": -2.0, "dd": -3.0, "ee": -4.0}}
    one = SimpleNamespace(sizes=[2, 4], alp=[-9.0, -5.0], instances=100, of_size=of_size.get)
    two = SimpleNamespace(sizes=[2], alp=[-9.0], instances=100, of_size={2: {"a": -1.0, "zz": -2.0}}.get)
    assert allocate({"one": one, "two": two}, 5, 0.7, 0.7).pieces == {"a", "cc", "dd", "ee", "zz"}


@pytest.mark.parametrize("share, expected", [
    (4, ["a", "b", "c", "d"]),
    (2, ["b", "d"]),
    (1, ["d"]),
    (6, ["a", "b", "b", "c", "d", "d"]),
    (8, ["a", "a", "b", "b", "c", "c", "d", "d"]),
])  # fmt: skip
def test_sentences_are_drawn_evenly_and_again_where_there_are_few(tmp_path, share, expected):
    (tmp_path / "text").write_text("a\nb\n\nc\nd\n")
    assert list(drawn([tmp_path / "text"], 4, share)) == expected


@pytest.mark.parametrize("change", [{"alpha": -0.1}, {"beta": -0.1}, {"alpha": math.nan}, {"size": 0}, {"lines": 0}, {"workers": 0},
                                    {"step": 51}, {"coverage": 0.89}, {"coverage": 1.01}])  # fmt: skip
def test_numbers_from_python_are_checked_too(tmp_path, change):
    good = Options({}, tmp_path, 10, largest=50, step=10, workers=1)
    assert not good.joint and not good.every_size
    ((name, value),) = change.items()
    with pytest.raises(UserError, match=f"{name} {value}: must be"):
        replace(good, **change)
