# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Which languages and pairs a data root has, and which of them are asked for."""

import pytest

from veco_fairseq.data.roots import choose, find_languages, find_pairs, load_dictionary
from veco_fairseq.data.sources import load_streams
from veco_fairseq.errors import UserError
from veco_fairseq.tasks.camlm_options import CamlmTaskConfig


def touch(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


def test_a_pair_may_have_languages_with_hyphens(tmp_path):
    touch(tmp_path, "bitext/zh-Hans-en/train.zh-Hans-en.en.bin", "bitext/de-zh-Hans/train.de-zh-Hans.de.idx",
          "bitext/aa-bb/train.aa-bb.bb.idx", "bitext/aa-cc/valid.aa-cc.aa.idx", "bitext/aa-dd/train.aa-bb.aa.idx", "bitext/notes")  # fmt: skip
    found = find_pairs(tmp_path, "train")
    sides = {"aa-bb": ("aa", "bb"), "de-zh-Hans": ("de", "zh-Hans"), "zh-Hans-en": ("zh-Hans", "en")}
    assert list(found.items()) == [
        (pair, tuple(tmp_path / f"bitext/{pair}/train.{pair}.{side}" for side in both)) for pair, both in sides.items()
    ]


def test_languages_come_in_the_order_of_the_alphabet(tmp_path):
    touch(tmp_path, "mono/cc/train.idx", "mono/aa/train.bin", "mono/bb/valid.idx", "mono/dd/train.idx", "mono/dd/train.bin")
    assert list(find_languages(tmp_path, "train").items()) == [
        (lang, tmp_path / f"mono/{lang}/train") for lang in ("aa", "cc", "dd")
    ]


def test_what_is_asked_for_comes_in_its_order_and_a_pair_in_either(tmp_path):
    found = {"aa-bb": 1, "aa-cc": 2, "bb-cc": 3}
    assert choose(found, None, "--x", tmp_path) == choose(found, "", "--x", tmp_path) == found
    assert list(choose(found, "bb-cc, bb-aa", "--x", tmp_path).items()) == [("bb-cc", 3), ("aa-bb", 1)]
    found = {"de-zh-Hans": 1, "pt-BR-zh-Hans": 2}
    assert list(choose(found, "zh-Hans-pt-BR,zh-Hans-de", "--x", tmp_path).items()) == [("pt-BR-zh-Hans", 2), ("de-zh-Hans", 1)]
    found = {"aa-bb": 1}
    with pytest.raises(UserError, match="--x bb-aa: named twice"):
        choose(found, "aa-bb,bb-aa", "--x", tmp_path)
    with pytest.raises(UserError, match=rf"--x dd: not in {tmp_path} \(there is: none\)"):
        choose({}, "dd", "--x", tmp_path)


def test_the_dictionary_of_a_root_ends_with_the_mask(tmp_path):
    with pytest.raises(UserError, match=r"dict\.txt: no such file: a data root needs the dictionary"):
        load_dictionary(tmp_path)
    for text in ("a 1\nb 1\n", "a 1\nb 1\n<mask> 1\n"):
        (tmp_path / "dict.txt").write_text(text)
        assert load_dictionary(tmp_path).symbols == ["<s>", "<pad>", "</s>", "<unk>", "a", "b", "<mask>"]


def test_tokens_after_the_mask_would_never_be_drawn(make_root):
    """Nor any, where the mask is the first: a loader's process ended with the error of an empty range."""
    root = make_root()
    tokens = (root / "dict.txt").read_text().splitlines()
    (root / "dict.txt").write_text("\n".join([*tokens[:3], "<mask> 1", *tokens[3:]]))
    with pytest.raises(UserError, match=r"its dict.txt has <mask> as token 7 of 45, but it must be the last: take the line away"):
        load_streams(root, "train", CamlmTaskConfig(), load_dictionary(root))


def test_translation_data_are_told_as_such(tmp_path):
    (tmp_path / "dict.xx.txt").touch()
    with pytest.raises(UserError, match=r"is translation data \(it has dict\.xx\.txt\), for --task translation: .* veco prepare"):
        load_dictionary(tmp_path)
