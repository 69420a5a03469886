# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The labels that a training for understanding has, and those that nothing can be learnt from."""

import pytest

from veco_fairseq.errors import UserError
from veco_fairseq.understanding.labels import labels_of
from veco_fairseq.understanding.reading import read_examples


def read(folder, labels):
    path = folder / "train-en.tsv"
    path.write_text("".join(f"a dog\ta cat\t{label}\n" for label in labels))
    return labels_of({"en": path}, "classification")


@pytest.mark.parametrize("labels", [["0", "1"], ["1.0", "0.0"], ["3.4", "entailment"], ["", "No", "Yes"]])
def test_labels_are_sorted_and_those_that_are_missing_do_not_count(tmp_path, labels):
    assert read(tmp_path, labels) == sorted(set(labels) - {""})


def test_an_unknown_tag_is_no_tag_to_learn(tmp_path):
    """CoNLL-U writes ``_`` for it, and files of words and tags that are made of CoNLL-U, too."""
    path = tmp_path / "train-en.tsv"
    path.write_text("a\tDET\nb\t_\nc\tNOUN\n\nd\t_\n")
    assert labels_of({"en": path}, "tagging") == ["DET", "NOUN"]
    assert [sentence.tags for sentence in read_examples(path, "en", "tagging")] == [("DET", "", "NOUN"), ()]


def test_no_label_at_all_is_told_with_what_a_row_needs(tmp_path):
    """A row of a sentence and its label is one of two sentences without any."""
    path = tmp_path / "train-en.tsv"
    path.write_text("a dog\tyes\na cat\tno\n")
    with pytest.raises(UserError) as caught:
        labels_of({"en": path}, "classification")
    advice = "give each row two sentences and a label; beside a single sentence, write . as the second"
    assert str(caught.value) == f"{path}: has no label to learn: {advice}"
    path.write_text("a dog\t.\tyes\na cat\t.\tno\n")  # as told
    assert labels_of({"en": path}, "classification") == ["no", "yes"]
    path.write_text("a\t_\n")
    with pytest.raises(UserError, match="has no label to learn: give each word a tag$"):
        labels_of({"en": path}, "tagging")


def test_one_label_alone_is_nothing_to_learn(tmp_path):
    """The loss had been 0 from the first update on, and each validation right."""
    with pytest.raises(UserError, match=r"train-en\.tsv: all examples have the label yes: there must be two"):
        read(tmp_path, ["yes", "yes", ""])


def test_capitals_belong_to_a_label_and_do_not_make_another_one(tmp_path):
    """Predictions had been in small letters, whatever the files had."""
    with pytest.raises(UserError, match=r"train-en\.tsv: the labels YES and Yes differ in capitals alone: write one"):
        read(tmp_path, ["No", "Yes", "YES"])
    assert read(tmp_path, ["NEUTRAL", "neutral", "Entailment"]) == ["entailment", "neutral"]  # SICK and XNLI together


def test_labels_that_look_alike_are_refused(tmp_path):
    """A zero-width space behind a label had made a class of its own."""
    look = r"the labels 'yes' and 'yes\\u200b' differ in characters alone that cannot be seen: write one"
    with pytest.raises(UserError, match=look):
        read(tmp_path, ["no", "yes", "yes\u200b"])
    (tmp_path / "train-en.tsv").write_text("a\tDET\nb\tDET\u200d\nc\tdet\n")
    with pytest.raises(UserError, match="labels 'DET' and 'DET.u200d' differ in characters"):
        labels_of({"en": tmp_path / "train-en.tsv"}, "tagging")


def test_figures_are_no_classes(tmp_path):
    """Each figure, such as a similarity of 3.4, had been a class of its own."""
    with pytest.raises(UserError, match=r"train-en\.tsv: the labels are figures, such as 3\.4: --nlu-task classification"):
        read(tmp_path, ["1.0", "3.4", "5.0"])
