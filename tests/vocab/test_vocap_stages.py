# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""VoCap's stages one by one: texts, options, what is made again, the joint model, and the comparison of models."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from sentencepiece import sentencepiece_model_pb2
from support.vocab import text

from veco_fairseq import plots
from veco_fairseq.data.sentencepiece import train_sentencepiece
from veco_fairseq.errors import UserError
from veco_fairseq.parallel import default_workers
from veco_fairseq.vocab import comparison, vocap
from veco_fairseq.vocab.allocation import Allocation, allocate
from veco_fairseq.vocab.corpora import find_corpora, sample
from veco_fairseq.vocab.vocap import Options, make_vocabulary


@pytest.fixture
def options(tmp_path):
    (tmp_path / "aa.txt").write_text("a b\n")
    return Options({"aa": [tmp_path / "aa.txt"]}, tmp_path / "out", 1000)


# Texts


def test_which_files_of_a_folder_are_texts(tmp_path):
    names = ("news.zh_Hans.gz", "swh.txt", "train.de.txt.gz", ".hidden", "b.en", "a.en", "c.d.fr", "es.txt.xz")
    for name in names:
        (tmp_path / name).write_text("a\n")
    (tmp_path / "folder.de").mkdir()
    found = find_corpora([f"it={tmp_path}/.hidden", str(tmp_path)])
    assert list(found.items()) == [(lang, [tmp_path / name for name in of]) for lang, of in {
        "de": ["train.de.txt.gz"], "en": ["a.en", "b.en"], "es": ["es.txt.xz"], "fr": ["c.d.fr"], "it": [".hidden"], "swh": ["swh.txt"],
        "zh_Hans": ["news.zh_Hans.gz"],
    }.items()]  # fmt: skip


@pytest.mark.parametrize("name", ["e.txt", "abcd.txt", "EN.txt", "en1.txt", "zh_.txt", "x.zh-cn", "README.md"])
def test_what_is_no_language_in_a_name(tmp_path, name):
    (tmp_path / name).write_text("a\n")
    with pytest.raises(UserError, match=f"--corpora {tmp_path}: {name}: its name has no language"):
        find_corpora([str(tmp_path)])


@pytest.mark.parametrize("names", [("a", "a.gz"), ("a.gz", "a"), ("a", "a"), ("a.gz", "a.gz"), ("a.xz", "a.gz")])
def test_a_text_is_not_taken_twice(tmp_path, names):
    """As itself, or packed and unpacked, in any order; as another language's it is."""
    for name in names:
        (tmp_path / name).write_text("a\n")
    first, second = (tmp_path / name for name in names)
    with pytest.raises(UserError, match=f"has {second.name} and {first.name}: remove one of them"):
        find_corpora([f"en={first}", f"en={second}"])
    assert find_corpora([f"en={first}", f"de={second}"]) == {"de": [second], "en": [first]}


def test_texts_without_text_are_named(tmp_path):
    for name in "ab":
        (tmp_path / name).write_text(" \n\n")
    with pytest.raises(UserError, match=f"{tmp_path}/a, {tmp_path}/b: holds no text"):
        sample([tmp_path / "a", tmp_path / "b"], 5)
    (tmp_path / "b").write_text("x\n \ny\n")
    assert sample([tmp_path / "a", tmp_path / "b"], 5) == (["x", "y"], 2)
    assert sample([tmp_path / "a", tmp_path / "b"], 1) == (["y"], 2)


# Options


def test_defaults_and_borders_of_the_options(options):
    assert replace(options, size=7) == Options(
        options.corpora, options.output, 7, alpha=0.7, beta=0.7, largest=50_000, step=1000, lines=1_000_000, coverage=1.0,
        every_size=False, joint=False, workers=default_workers(),
    )  # fmt: skip
    for good in ({"alpha": 0, "beta": 0}, {"coverage": 0.98}, {"size": 1, "lines": 1, "workers": 1}, {"step": 1, "largest": 1}):
        assert replace(options, **good)
    for bad, message in (({"largest": 0}, "--largest 0: must be 1 or more"), ({"step": 0}, "--step 0: must be 1 or more"),
                         ({"step": 51, "largest": 50}, "--step 51: must be at most --largest 50")):  # fmt: skip
        with pytest.raises(UserError, match=message):
            replace(options, **bad)


@pytest.mark.parametrize("name", ["sentencepiece.bpe.model", "dict.txt", "allocation.tsv", "allocation.png", "languages"])
def test_what_another_program_made_is_not_written_over(options, monkeypatch, name):
    monkeypatch.setattr(vocap, "_make_languages", None)
    options.output.mkdir()
    (options.output / name).write_text("mine")
    with pytest.raises(UserError, match=f"holds a {name} that this command did not make"):
        make_vocabulary(options, print)
    assert [path.name for path in options.output.iterdir()] == [name]


# What is made again


@pytest.fixture
def inputs(monkeypatch):
    """What each stage is made from by its name, with the given options, where all is there."""
    asked = {}

    class Done:
        def __init__(self, *_):
            self.steps = {"union": {"report": {"table": "the table"}}}

        def save(self):
            pass

        def is_done(self, step, made_from):
            asked[step] = made_from
            report = {"vocabularies": 3, "least": 1000, "most": 3000}
            self.steps.setdefault(step, {"made_from": made_from, "report": report})
            return True

    def inputs(options):
        asked.clear()
        assert make_vocabulary(options, lambda message: None) == "the table"
        return dict(asked)

    monkeypatch.setattr(vocap, "Manifest", Done)
    monkeypatch.setattr(vocap.Vocabularies, "load", lambda path, **options: None)
    return inputs


@pytest.mark.parametrize("change, again", [
    ({"size": 999}, "union joint"), ({"alpha": 0.6}, "union joint"), ({"beta": 0.6}, "union joint"),
    ({"largest": 49_000}, "aa union joint"), ({"step": 999}, "aa union joint"), ({"lines": 9}, "aa union joint"),
    ({"coverage": 0.99}, "aa union joint"), ({"every_size": True}, "aa union joint"), ({"workers": 1}, ""),
], ids=str)  # fmt: skip
def test_other_options_make_again_what_depends_on_them(options, inputs, change, again):
    usual, other = inputs(replace(options, joint=True)), inputs(replace(options, joint=True, **change))
    assert list(usual) == ["aa", "union", "joint"] and [name for name in usual if usual[name] != other[name]] == again.split()
    assert list(inputs(options)) == ["aa", "union"]


def test_a_language_tells_what_was_made_of_how_much_text_and_how_long_it_took(options, monkeypatch):
    """<unk>, a space and two letters are the least; the clock goes on by 90 seconds."""
    (options.output / "languages").mkdir(parents=True)
    times = iter((1000.0, 1090.0))
    monkeypatch.setattr(vocap.time, "time", lambda: next(times))
    options.corpora["aa"][0].write_text("ab ba\n" * 2 + "bb ab aab\n" * 2)
    report = vocap._make_language(replace(options, largest=6, step=1, every_size=True), "aa")
    assert report == {"vocabularies": 3, "least": 4, "most": 6, "instances": 4, "seconds": 90.0}


def test_a_failure_names_its_language(options):
    options.corpora["aa"][0].write_text("abc\n")
    with pytest.raises(UserError, match="^aa: --largest 2: is below the number of the text's characters"):
        vocap._make_language(replace(options, largest=2, step=1), "aa")


def test_what_is_said_of_a_vocabulary(options):
    said = []
    for size in (8, 9):
        vocap._tell_of(Allocation({"aa": 1200, "bb": 30}, set("abcde"), 4), replace(options, size=size), said.append)
    assert said == ["allocation: 1,230 pieces in sum, 5 in the union, 4 clipped, 3 symbols"] * 2 + [
        "warning: --size 9 is not reached: all languages have their largest vocabularies"]  # fmt: skip
    report = {"vocabularies": 3, "least": 1000, "most": 2500}
    told = [vocap._description(report, replace(options, largest=largest)) for largest in (2500, 2501)]
    assert told == [
        "3 vocabularies of 1,000 to 2,500 pieces",
        "3 vocabularies of 1,000 to 2,500 pieces, all that its text has, of 2,501",
    ]


# The joint model


@pytest.mark.parametrize("most, shares", [(1000, {"aa": 267, "bb": 133}), (120, {"aa": 80, "bb": 40}), (1, {"aa": 1, "bb": 1})])
def test_the_joint_models_text_has_a_share_of_each_language(tmp_path, monkeypatch, most, shares):
    """With alpha 0.5, 320 and 80 sentences count as 2 to 1; there are 400, or as many as --lines."""
    trained, asked = [], {}

    def train(lines, size, **named):
        trained.append((list(lines), size, named))
        return model

    model = train_sentencepiece(text(1, 99), 40, character_coverage=1.0)
    monkeypatch.setattr(vocap, "train_sentencepiece", train)
    monkeypatch.setattr(vocap, "drawn", lambda paths, instances, share: asked.update({paths: (instances, share)}) or [paths])
    options = Options({"aa": "A", "bb": "B"}, tmp_path, 90, alpha=0.5, lines=most, coverage=0.98)
    vocabularies = {"aa": SimpleNamespace(instances=320), "bb": SimpleNamespace(instances=80)}
    manifest = SimpleNamespace(
        is_done=lambda *_: False, start=lambda *args: begun.append(args), finish=lambda *args: finished.append(args)
    )
    begun, finished = [], []
    vocap._make_joint(options, vocabularies, manifest=manifest, made_from={"x": 1}, say=lambda message: None)
    assert asked == {"A": (320, shares["aa"]), "B": (80, shares["bb"])}
    assert trained == [(["A", "B"], 90, {"character_coverage": 0.98, "option": "--size"})]
    files = ["joint/sentencepiece.bpe.model", "joint/dict.txt"]
    assert begun == [("joint", files)] and finished == [("joint", {"x": 1}, files, {"lines": min(most, 400)})]
    assert all((tmp_path / file).is_file() for file in files) and (tmp_path / files[0]).read_bytes() == model


# The comparison


def test_models_and_their_names():
    assert comparison.named_models(["a=x/m.model", "y/n.model", "b=c=d"]) == {
        "a": Path("x/m.model"), "n.model": Path("y/n.model"), "b": Path("c=d")}  # fmt: skip
    with pytest.raises(UserError, match="--alp y/m: m is there twice: give names, NAME=MODEL"):
        comparison.named_models(["x/m", "y/m"])


@pytest.mark.parametrize("change, message", [
    (lambda m: setattr(m.trainer_spec, "model_type", 2), "is no unigram model: only these have probabilities"),
    (lambda m: setattr(m.trainer_spec, "split_by_whitespace", False), "its words do not begin with a space"),
    (lambda m: setattr(m.trainer_spec, "treat_whitespace_as_suffix", True), "its words do not begin with a space"),
    (lambda m: setattr(m.normalizer_spec, "add_dummy_prefix", False), "its words do not begin with a space"),
    (lambda m: (setattr(m.trainer_spec, "allow_whitespace_only_pieces", True),
                setattr(m.normalizer_spec, "remove_extra_whitespaces", False)), "has pieces of several spaces"),
    (lambda m: None, None),
])  # fmt: skip
def test_which_models_have_an_alp(tmp_path, change, message):
    model = sentencepiece_model_pb2.ModelProto.FromString(train_sentencepiece(text(1, 99), 40, character_coverage=1.0))
    change(model)
    (tmp_path / "m").write_bytes(model.SerializeToString())
    if message is None:
        assert comparison.measure({"m": tmp_path / "m"}, {}, 9, 1) == {}
        return
    with pytest.raises(UserError, match=f"{tmp_path}/m: {message}"):
        comparison.measure({"m": tmp_path / "m"}, {}, 9, 1)


def test_a_text_of_which_the_model_leaves_nothing_has_no_alp(tmp_path):
    (tmp_path / "m").write_bytes(train_sentencepiece(text(1, 99), 40, character_coverage=1.0))
    (tmp_path / "aa").write_text("\u200b\n\u200b\u200b\n", encoding="utf-8")  # it takes them for spaces
    message = f"{tmp_path}/aa: nothing is left of the text when {tmp_path}/m normalises it: leave it out of --corpora"
    with pytest.raises(UserError, match=f"^{message}$"):
        comparison.measure({"m": tmp_path / "m"}, {"aa": [tmp_path / "aa"]}, 9, 1)


def test_the_alp_of_languages_is_in_their_order_and_of_so_many_lines(monkeypatch):
    monkeypatch.setattr(comparison, "in_parallel", lambda calls, workers: [
        (name, call()) for name, call in reversed(calls.items()) if workers == 3])  # fmt: skip
    monkeypatch.setattr(comparison, "_measure_language", lambda models, paths, lines: (paths, lines))
    found = comparison.measure({}, {"bb": "B", "aa": "A"}, 9, 3)
    assert list(found.items()) == [("bb", ("B", 9)), ("aa", ("A", 9))]


def test_the_table_and_the_picture_of_a_comparison(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(plots, "plot_bars", lambda *arguments: drawn.append(arguments))
    alp = {"bb": {"old": -20.256, "new": -10.0}, "aa": {"old": -3.0, "new": -4.5}}
    expected = "language\told\tnew\nbb\t-20.26\t-10.00\naa\t-3.00\t-4.50\n"
    assert comparison.write_comparison(alp, None) == expected and not drawn
    assert comparison.write_comparison(alp, tmp_path) == expected == (tmp_path / "alp.tsv").read_text()
    (bars, label, _, path), = drawn  # fmt: skip
    assert bars == {"old": {"bb": 20.256, "aa": 3.0}, "new": {"bb": 10.0, "aa": 4.5}} and path == tmp_path / "alp.png"
    assert label.startswith("-ALP")


def test_the_table_of_an_allocation_is_by_size_and_name(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(plots, "plot_bars", lambda *arguments: drawn.append(arguments))
    monkeypatch.setattr(vocap, "count_pieces", lambda words, union: words)
    monkeypatch.setattr(vocap, "average_log_probability", lambda counts, sentences: -float(sentences))
    (tmp_path / "sentencepiece.bpe.model").write_bytes(train_sentencepiece(text(1, 99), 40, character_coverage=1.0))
    vocabularies = {name: SimpleNamespace(instances=n, sizes=[500, 1500], alp=[-30.0, -20.0], words=SimpleNamespace(sentences=n))
                    for name, n in (("cc", 100), ("bb", 100), ("aa", 400))}  # fmt: skip
    monkeypatch.setattr(vocap.Vocabularies, "load", lambda path: vocabularies[path.stem])
    options = Options({}, tmp_path, 2600, alpha=0.5)
    table = vocap._write_table(options, vocabularies, Allocation({"cc": 1500, "bb": 1500, "aa": 500}, set(), 0))
    rows = ["bb\t100\t0.2500\t1500\t1500\t-20.00\t-100.00", "cc\t100\t0.2500\t1500\t1500\t-20.00\t-100.00",
            "aa\t400\t0.5000\t1500\t500\t-30.00\t-400.00"]  # fmt: skip
    assert table.splitlines()[1:] == rows and (tmp_path / "allocation.tsv").read_text() == table
    bars = {"allocated": {"bb": 1.5, "cc": 1.5, "aa": 0.5}}
    assert drawn == [(bars, "thousands of pieces", "VoCap, 2,600 pieces", tmp_path / "allocation.png")]


def test_the_words_of_all_languages_are_never_in_memory_together(tmp_path, monkeypatch):
    """... which of a hundred languages with a million lines are 11 GB; the table has the ALP of each language's own words."""
    corpora, loaded = {}, []
    for language, seed in (("aa", 1), ("bb", 2)):
        corpora[language] = [tmp_path / language]
        (tmp_path / language).write_text("\n".join(text(seed, 300)), encoding="utf-8")
    monkeypatch.setattr(
        vocap, "allocate", lambda found, *args: loaded.extend(of.words.texts for of in found.values()) or allocate(found, *args)
    )
    make_vocabulary(Options(corpora, tmp_path / "out", 150, largest=80, step=40, workers=1), lambda line: None)
    assert loaded == [[], []]
    rows = [line.split("\t") for line in (tmp_path / "out/allocation.tsv").read_text().splitlines()[1:]]
    union = tmp_path / "out/sentencepiece.bpe.model"
    measured = comparison.measure({"union": union}, corpora, 10**6, 1)
    assert {row[0]: row[-1] for row in rows} == {name: f"{of['union']:.2f}" for name, of in measured.items()}
