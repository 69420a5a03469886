# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""What the tests of converted models share."""

from types import SimpleNamespace

import torch
from conftest import changed, make_dictionary, save_with_vocabulary
from fairseq import checkpoint_utils
from fairseq.models import build_model

from veco_fairseq.checkpoints.seq2seq import convert_to_seq2seq

PAD, EOS = 1, 2
CHOICES = {"last": [7, 8, 9, 10, 11], "first": [0, 1, 2, 3, 4], "11,1,10,1,0": [11, 1, 10, 1, 0]}


def load(path, dictionary=None):
    """The converted model and its state, loaded as fairseq's trainer and generator do it: strictly."""
    state = checkpoint_utils.load_checkpoint_to_cpu(str(path))
    words = dictionary or make_dictionary(mask=False)
    model = build_model(state["cfg"]["model"], SimpleNamespace(source_dictionary=words, target_dictionary=words))
    model.load_state_dict(state["model"], strict=True, model_cfg=state["cfg"]["model"])
    return model.eval(), state


def convert(checkpoint, layers, **options):
    output = checkpoint.with_name("converted.pt")
    convert_to_seq2seq(checkpoint, output, layers, **options)
    return load(output)[0]


def tokens(lengths, seed, left=False):
    """Random sequences, (batch, longest), padded on the right or, as sources in fairseq, on the left."""
    generator = torch.Generator().manual_seed(seed)
    batch = torch.full((len(lengths), max(lengths)), PAD)
    for row, length in enumerate(lengths):
        ids = torch.randint(4, 44, (length,), generator=generator)
        ids[-1] = EOS
        batch[row, -length if left else 0 : None if left else length] = ids
    return batch


def same(found, found_tokens, expected, expected_tokens):
    """Compare (batch, length, dim) at the real tokens, whichever side the padding is on."""
    torch.testing.assert_close(found[found_tokens.ne(PAD)], expected[expected_tokens.ne(PAD)], atol=1e-5, rtol=1e-5)


def decode(model, targets, encoder_out):
    """The decoder's last states, (batch, length, dim), without the causal mask."""
    return model.decoder(targets, encoder_out=encoder_out, features_only=True, full_context_alignment=True)[0]


def encode(model, sources):
    return model.encoder(sources, src_lengths=sources.ne(PAD).sum(1))


def translating(folder, make_model, more_tokens=""):
    """A folder with a converted model from de to en, of random weights, its vocabulary, and dictionaries by language."""
    lines = [f"{a}{b}{c} {d}{b}{c}" for a in "bdg" for b in "aeiou" for c in "lmn" for d in "gbd"]
    pretrained = save_with_vocabulary(folder, make_model, lines, 30, layers=2)
    for lang in ("de", "en"):
        (folder / f"dict.{lang}.txt").write_text((folder / "dict.txt").read_text() + more_tokens)
    convert_to_seq2seq(
        pretrained, folder / "model.pt", 2, dictionary=folder / "dict.de.txt", random_cross_attention=True, allow_new_tokens=True
    )
    with changed(folder / "model.pt") as state:
        state["cfg"]["task"].update(source_lang="de", target_lang="en")
    return folder
