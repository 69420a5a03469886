# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The scores of translations, against the probabilities that the models give them in one pass, without a search."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from fairseq.dataclass.configs import GenerationConfig
from fairseq.models import build_model
from support.converted import translating

from veco_fairseq.checkpoints import read_checkpoint
from veco_fairseq.data.vocabulary import read_dictionary
from veco_fairseq.inference.requests import Request
from veco_fairseq.inference.translator import Translator

LINES = ["bal dem gim", "gul", "dol bem bal dil gan", "bin don"]
SEARCHES = {"beam": {"lenpen": 1.3}, "sampling": {"sampling": True, "temperature": 0.8}, "prefix": {}}
# Each of the models of an ensemble, by its options.
KINDS = {
    "post-norm": [{}],
    "pre-norm": [{"encoder_normalize_before": True, "decoder_normalize_before": True}],
    "adaptive": [{"adaptive_softmax_cutoff": "10,20", "share_decoder_input_output_embed": False, "share_all_embeddings": False}],
    "sinusoids": [{"encoder_learned_pos": False, "decoder_learned_pos": False, "layernorm_embedding": False}],
    "ensemble": [
        {},
        {
            "decoder_layers": 1,
            "decoder_normalize_before": True,
            "encoder_embed_dim": 24,
            "decoder_embed_dim": 24,
            "decoder_input_dim": 24,
            "decoder_output_dim": 24,
        },
    ],
}


def save(folder: Path, name: str, seed: int, **options) -> Path:
    """A translation model of random weights, with the options of the one in ``folder`` but these."""
    state = read_checkpoint(folder / "model.pt")
    words = read_dictionary(folder / "dict.de.txt")
    for option, value in options.items():
        setattr(state["cfg"]["model"], option, value)
    torch.manual_seed(seed)
    model = build_model(state["cfg"]["model"], SimpleNamespace(source_dictionary=words, target_dictionary=words))
    for parameter in model.parameters():
        parameter.data.add_(0.2 * torch.randn_like(parameter))
    torch.save({**state, "model": model.state_dict()}, folder / name)
    return folder / name


def forced(models, source, tokens, temperature):
    """The log of the mean of the models' probabilities of each token, (tokens)."""
    previous = torch.tensor([[2, *tokens[:-1].tolist()]])
    of_each = []
    for model in models:
        output = model(source.unsqueeze(0), torch.tensor([len(source)]), previous)
        logits = (output[0] / temperature, output[1])
        of_each.append(model.get_normalized_probs(logits, log_probs=False)[0])
    return torch.stack(of_each).mean(0).log().gather(1, tokens.unsqueeze(1)).squeeze(1)


@pytest.mark.parametrize("kind", KINDS)
def test_a_score_is_of_the_models_own_probabilities(tmp_path, make_model, monkeypatch, kind):
    folder = translating(tmp_path / "model", make_model)
    paths = [save(folder, f"{number}.pt", number, **options) for number, options in enumerate(KINDS[kind])]
    for name, search in SEARCHES.items():
        options = GenerationConfig(beam=3, nbest=2, max_len_a=0, max_len_b=9, **search)
        translator = Translator(paths, data=folder, search=options, cpu=True)
        generate, scores = translator.generator.generate, []

        def generate_and_score(models, sample, **more):
            found = generate(models, sample, **more)
            for source, hypotheses in zip(sample["net_input"]["src_tokens"], found):
                for one in hypotheses[:2]:
                    log_probs = forced(models, source[source.ne(1)], one["tokens"], search.get("temperature", 1.0))
                    scores.append(log_probs.sum().item() / len(log_probs) ** search.get("lenpen", 1.0))
            return found

        monkeypatch.setattr(translator.generator, "generate", generate_and_score)
        requests = [Request(line, prefix="gul" if name == "prefix" else "") for line in LINES]
        found = [one.score for line in translator.hypotheses(requests) for one in line]
        assert sorted(found) == pytest.approx(sorted(scores), rel=1e-4), name
        assert len(set(found)) > len(LINES), name
