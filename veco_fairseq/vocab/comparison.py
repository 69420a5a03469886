# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Compares vocabularies by their average log probability (VoCap, section 2.1), by language."""

from functools import partial
from pathlib import Path

from sentencepiece import sentencepiece_model_pb2

from veco_fairseq.data.sentencepiece import load_sentencepiece
from veco_fairseq.errors import UserError
from veco_fairseq.files import write_text
from veco_fairseq.parallel import in_parallel
from veco_fairseq.vocab.alp import average_log_probability, count_pieces, without_normaliser, words_of
from veco_fairseq.vocab.corpora import sample


def measure(models: dict[str, Path], corpora: dict[str, list[Path]], lines: int, workers: int) -> dict[str, dict[str, float]]:
    """Return the ALP of every model on every language's text (equation 1), by language and the model's name.

    Args:
        models: unigram models by name.
        corpora: files by language.
        lines: the most lines of a language.
        workers: the number of languages at a time.

    Raises:
        UserError: a model or text is missing or damaged, a model is no unigram model, or a text has nothing that it keeps.
    """
    for path in models.values():
        model = sentencepiece_model_pb2.ModelProto.FromString(load_sentencepiece(path).serialized_model_proto())
        trainer = model.trainer_spec
        if trainer.model_type != trainer.UNIGRAM:
            raise UserError(f"{path}: is no unigram model: only these have probabilities")
        if not trainer.split_by_whitespace or trainer.treat_whitespace_as_suffix or not model.normalizer_spec.add_dummy_prefix:
            raise UserError(f"{path}: its words do not begin with a space, which is needed here")
        if trainer.allow_whitespace_only_pieces and not model.normalizer_spec.remove_extra_whitespaces:
            raise UserError(f"{path}: has pieces of several spaces, which are no words: its ALP cannot be measured here")
    calls = {name: partial(_measure_language, models, paths, lines) for name, paths in corpora.items()}
    found = dict(in_parallel(calls, workers))
    return {name: found[name] for name in corpora}


def _measure_language(models: dict[str, Path], paths: list[Path], most: int) -> dict[str, float]:
    lines, _ = sample(paths, most)
    alp = {}
    for name, path in models.items():
        model = load_sentencepiece(path)
        words = words_of(lines, model)
        if not words.sentences:
            texts = ", ".join(map(str, paths))
            raise UserError(f"{texts}: nothing is left of the text when {path} normalises it: leave it out of --corpora")
        bare = without_normaliser(sentencepiece_model_pb2.ModelProto.FromString(model.serialized_model_proto()))
        alp[name] = average_log_probability(count_pieces(words, bare), words.sentences)
    return alp


def write_comparison(alp: dict[str, dict[str, float]], output: Path | None) -> str:
    """Return several models' ALP by language as a table; with an output folder, write alp.tsv and alp.png (Figure 4)."""
    names = list(next(iter(alp.values())))
    rows = [("language", *names)]
    rows += [(language, *(f"{of[name]:.2f}" for name in names)) for language, of in alp.items()]
    table = "".join("\t".join(row) + "\n" for row in rows)
    if output is not None:
        from veco_fairseq.plots import plot_bars

        write_text(output / "alp.tsv", table)
        bars = {name: {language: -of[name] for language, of in alp.items()} for name in names}
        plot_bars(bars, "-ALP (shorter is better)", "Average log probability of a sentence", output / "alp.png")
    return table


def named_models(arguments: list[str]) -> dict[str, Path]:
    """Return the models of ``NAME=MODEL`` arguments; a model without a name gets its file's.

    Raises:
        UserError: two have the same name.
    """
    models: dict[str, Path] = {}
    for argument in arguments:
        name, equals, path = argument.partition("=")
        name, path = (name, path) if equals else (Path(argument).name, argument)
        if name in models:
            raise UserError(f"--alp {argument}: {name} is there twice: give names, NAME=MODEL")
        models[name] = Path(path)
    return models
