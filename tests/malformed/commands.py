# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The command lines of all commands on the good files, in a folder that holds these."""

from __future__ import annotations

from malformed import REPOSITORY

PLUGIN = ("--user-dir", str(REPOSITORY / "veco_fairseq"))
LAST = "checkpoint_last.pt"
SIZE = ("--encoder-layers", "2", "--encoder-embed-dim", "16", "--encoder-ffn-embed-dim", "32",
        "--encoder-attention-heads", "4", "--max-positions", "96", "--dropout", "0.1")  # fmt: skip
TRAINING = ("--optimizer", "adam", "--lr", "0.003", "--num-workers", "0", "--no-epoch-checkpoints", "--cpu")
ONE_LAYER = ("--encoder-layers", "1", "--decoder-layers", "1")


def pretrain(*more: str, root: str = "root", save_dir: str = "ckpt", updates: int = 2) -> tuple[str, ...]:
    """--task camlm on root/."""
    return ("fairseq-train", root, *PLUGIN, "--task", "camlm", "--criterion", "camlm", "--arch", "veco_tiny", *SIZE,
            "--max-tokens", "1024", "--mono-max-length", "32", "--bitext-max-length", "40", "--max-update",
            str(updates), *TRAINING, "--save-dir", save_dir, *more)  # fmt: skip


def inspect(*more: str, root: str = "root") -> tuple[str, ...]:
    return ("scripts/inspect_data.py", root, "--max-tokens", "1024", "--mono-max-length", "32", "--bitext-max-length",
            "40", "--arch", "veco_tiny", *more)  # fmt: skip


def translation(*more: str, data: str = "bin", save_dir: str = "ckpt", updates: int = 2) -> tuple[str, ...]:
    """--task translation on bin/, from aa to bb."""
    return ("fairseq-train", data, *PLUGIN, "--task", "translation", "-s", "aa", "-t", "bb", "--arch",
            "transformer_tiny", "--share-all-embeddings", *ONE_LAYER, "--encoder-embed-dim", "16",
            "--encoder-ffn-embed-dim", "32", "--decoder-embed-dim", "16", "--decoder-ffn-embed-dim", "32",
            "--max-tokens", "600", "--max-update", str(updates), *TRAINING, "--save-dir", save_dir, *more)  # fmt: skip


def generate(*more: str, data: str = "bin", checkpoint: str = f"mt/{LAST}") -> tuple[str, ...]:
    return ("fairseq-generate", data, *PLUGIN, "--path", checkpoint, "-s", "aa", "-t", "bb", "--gen-subset", "test",
            "--beam", "2", "--max-len-a", "0", "--max-len-b", "5", "--remove-bpe", "sentencepiece", "--cpu",
            *more)  # fmt: skip


def validate(*more: str, data: str = "bin", checkpoint: str = f"mt/{LAST}") -> tuple[str, ...]:
    return ("fairseq-validate", data, *PLUGIN, "--task", "translation", "--path", checkpoint, "-s", "aa", "-t", "bb",
            "--valid-subset", "valid", "--max-tokens", "600", "--cpu", *more)  # fmt: skip


def interactive(*more: str, data: str = "bin", checkpoint: str = f"mt/{LAST}", text: str = "-") -> tuple[str, ...]:
    return ("fairseq-interactive", data, *PLUGIN, "--path", checkpoint, "-s", "aa", "-t", "bb", "--beam", "2",
            "--max-len-b", "5", "--max-len-a", "0", "--input", text, "--cpu", *more)  # fmt: skip


def translate(*more: str, checkpoint: str = f"mt/{LAST}") -> tuple[str, ...]:
    return ("scripts/translate.py", checkpoint, "--data", "bin", "--beam", "2", "--max-len-a", "0", "--max-len-b",
            "5", "--cpu", *more)  # fmt: skip


def preprocess(*more: str, destination: str = "new", raw: str = "pieces", workers: int = 1) -> tuple[str, ...]:
    """fairseq-preprocess on pieces/."""
    return ("fairseq-preprocess", *PLUGIN, "-s", "aa", "-t", "bb", "--trainpref", f"{raw}/train", "--validpref",
            f"{raw}/valid", "--testpref", f"{raw}/test", "--destdir", destination, "--workers", str(workers),
            *more)  # fmt: skip


def prepare(*more: str, output: str = "new") -> tuple[str, ...]:
    """prepare_root.py on raw/, with a vocabulary of its own."""
    return ("scripts/prepare_root.py", "--mono", "aa=raw/mono.aa", "bb=raw/mono.bb", "--bitext",
            "aa-bb=raw/train.aa,raw/train.bb", "--valid-lines", "10", "--vocab-size", "120", "--character-coverage",
            "1", "--workers", "1", "--output", output, *more)  # fmt: skip


def prepare_with_vocabulary(*more: str, output: str = "new") -> tuple[str, ...]:
    """prepare_root.py on raw/, with root/'s vocabulary."""
    return ("scripts/prepare_root.py", "--mono", "aa=raw/mono.aa", "--bitext", "aa-bb=raw/train.aa,raw/train.bb",
            "--valid-lines", "10", "--sentencepiece", "root/sentencepiece.bpe.model", "--dict", "root/dict.txt",
            "--workers", "1", "--output", output, *more)  # fmt: skip


def encode(*more: str, text: str = "raw/test.aa", model: str = "root/sentencepiece.bpe.model") -> tuple[str, ...]:
    return ("scripts/encode.py", "--sentencepiece", model, "--inputs", text, "--outputs", "encoded", "--workers", "1",
            *more)  # fmt: skip


def binarize(*more: str, raw: str = "raw", model: str = "root/sentencepiece.bpe.model") -> tuple[str, ...]:
    return ("scripts/binarize.py", "-s", "aa", "-t", "bb", "--trainpref", f"{raw}/train", "--validpref", f"{raw}/valid",
            "--testpref", f"{raw}/test", "--sentencepiece", model, "--dict", "root/dict.txt", "--destdir", "new", "--workers",
            "1", *more)  # fmt: skip


def clean(*more: str, source: str = "raw/train.aa", target: str = "raw/train.bb") -> tuple[str, ...]:
    return ("scripts/clean.py", "-s", "en", "-t", "de", "--inputs", source, target, "--outputs", "clean.aa", "clean.bb",
            "--held-out", "raw/test.bb", "--sentencepiece", "root/sentencepiece.bpe.model", "--report", "new.json", "--workers",
            "1", *more)  # fmt: skip


def nlu(kind: str, *more: str, save_dir: str = "ckpt", updates: int = 2) -> tuple[str, ...]:
    """--task veco_nlu on KIND/ (classification, tagging or span), from camlm/."""
    return ("fairseq-train", kind, *PLUGIN, "--task", "veco_nlu", "--nlu-task", kind, "--criterion", "veco_nlu",
            "--arch", "veco_nlu_tiny", *SIZE, "--max-length", "96", "--stride", "16", "--batch-size", "8",
            "--max-update", str(updates), "--best-checkpoint-metric", "score", "--maximize-best-checkpoint-metric",
            "--finetune-from-model", f"camlm/{LAST}", *TRAINING, "--save-dir", save_dir, *more)  # fmt: skip


def evaluate(kind: str, *more: str) -> tuple[str, ...]:
    return ("scripts/evaluate_xtreme.py", "run", f"{kind}-model/{LAST}", "--data", kind, "--split", "dev", "--cpu",
            "--json", "figures.json", "--predictions", "predicted", *more)  # fmt: skip


def label(*more: str, text: str = "raw/test.aa") -> tuple[str, ...]:
    return ("scripts/label_with_teacher.py", f"tagging-model/{LAST}", "--input", text, "--output", "train-aa.conllu",
            "--cpu", *more)  # fmt: skip


def align(*more: str, source: str = "raw/test.aa", target: str = "raw/test.bb") -> tuple[str, ...]:
    return ("scripts/align.py", f"camlm/{LAST}", "--source", source, "--target", target, "--output", "found",
            "--layer", "1", "--cpu", *more)  # fmt: skip


def tatoeba(*more: str, source: str = "raw/test.aa", target: str = "raw/test.bb") -> tuple[str, ...]:
    return ("scripts/retrieve.py", "tatoeba", f"camlm/{LAST}", "--pairs", f"aa-bb={source},{target}", "--json",
            "tatoeba.json", "--cpu", *more)  # fmt: skip


def bucc(*more: str) -> tuple[str, ...]:
    return ("scripts/retrieve.py", "bucc", f"camlm/{LAST}", "--source", "bucc/aa.tsv", "--target", "bucc/bb.tsv",
            "--gold", "bucc/gold.tsv", "--output", "pairs.tsv", "--json", "bucc.json", "--neighbours", "3", "--cpu",
            *more)  # fmt: skip


def score(*more: str, hypothesis: str = "raw/test.bb", reference: str = "raw/valid.bb") -> tuple[str, ...]:
    return ("scripts/score.py", "--hypothesis", hypothesis, "--reference", reference, "--lang", "en", "--json",
            "new.json", *more)  # fmt: skip


def score_generated(*more: str) -> tuple[str, ...]:
    return ("scripts/score.py", "--generate-output", "scores/generated.out", "--reference", "raw/test.bb", "--lang",
            "en", "--json", "new.json", *more)  # fmt: skip


def trim(*more: str) -> tuple[str, ...]:
    return ("scripts/trim_vocab.py", "raw/train.aa", "raw/train.bb", "--sentencepiece", "root/sentencepiece.bpe.model",
            "--keep", "90", "--output", "trimmed", "--workers", "1", *more)  # fmt: skip


def vocap(*more: str, output: str = "new") -> tuple[str, ...]:
    return ("scripts/vocap.py", "--corpora", "aa=raw/mono.aa", "bb=raw/mono.bb", "--size", "90", "--step", "20",
            "--largest", "80", "--workers", "1", "--output", output, *more)  # fmt: skip


def measure_alp(*more: str) -> tuple[str, ...]:
    return ("scripts/vocap.py", "--corpora", "aa=raw/mono.aa", "--alp", "own=root/sentencepiece.bpe.model",
            "--workers", "1", *more)  # fmt: skip


def attention(*more: str) -> tuple[str, ...]:
    return ("scripts/plot_attention.py", f"camlm/{LAST}", "--source", "one two", "--target", "two one", "--output",
            "map.png", *more)  # fmt: skip


def convert(*more: str, checkpoint: str = f"camlm/{LAST}") -> tuple[str, ...]:
    return ("scripts/convert_to_seq2seq.py", "--checkpoint", checkpoint, "--output", "converted.pt",
            "--decoder-layers", "all", *more)  # fmt: skip


def finetune_converted(*more: str) -> tuple[str, ...]:
    return translation("--finetune-from-model", f"mt/{LAST}", *more)


def average(*more: str) -> tuple[str, ...]:
    return ("scripts/average_checkpoints.py", "--inputs", f"mt/{LAST}", f"mt/{LAST}", "--output", "mean.pt", *more)


def export_translation(*more: str) -> tuple[str, ...]:
    sentencepiece = ("--sentencepiece", "root/sentencepiece.bpe.model")
    return ("scripts/export_hf.py", "--checkpoint", f"mt/{LAST}", "--output", "exported", *sentencepiece, *more)


def export_hf(*more: str) -> tuple[str, ...]:
    return ("scripts/export_hf.py", "--checkpoint", f"camlm/{LAST}", "--output", "exported", *more)


def count(*more: str) -> tuple[str, ...]:
    return ("scripts/count_operations.py", f"mt/{LAST}", "--sample-updates", "1", *more)


def table(*more: str) -> tuple[str, ...]:
    return ("scripts/evaluate_xtreme.py", "table", "xnli=results/xnli.json", "tatoeba=results/tatoeba.json",
            "bucc=results/bucc.json", "--json", "table.json", *more)  # fmt: skip


def layers(*more: str) -> tuple[str, ...]:
    return ("scripts/plot_layers.py", "one=results/tatoeba.json", "--pair", "aa-bb", "--output", "layers.png", *more)


def curves(*logs: str) -> tuple[str, ...]:
    return ("scripts/plot_curves.py", *(f"{log}={log}" for log in logs), "--metric", "loss", "--output", "curves.png")


def bars(*more: str) -> tuple[str, ...]:
    return ("scripts/plot_scores.py", "test/one=scores/score.json", "--output", "bars.png", *more)
