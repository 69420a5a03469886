# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The authors' checkpoint: made here with its names and random weights, imported, and compared with stock fairseq."""

from argparse import Namespace
from types import SimpleNamespace

import pytest
import torch
from conftest import changed, error_line, make_dictionary, write_tokens
from fairseq.dataclass.configs import GenerationConfig
from fairseq.models import ARCH_CONFIG_REGISTRY
from fairseq.models.transformer import TransformerModel
from fairseq.sequence_generator import SequenceGenerator
from fairseq.tasks import TASK_REGISTRY
from fairseq.tasks.translation import TranslationConfig, load_langpair_dataset
from support.models import all_random

from veco_fairseq.benchmarks.generation import Words
from veco_fairseq.checkpoints.pretrained import read_pretrained
from veco_fairseq.checkpoints.reading import read_checkpoint
from veco_fairseq.checkpoints.release import back_to_pretraining, import_release, read_release
from veco_fairseq.errors import UserError
from veco_fairseq.inference.translator import Translator
from veco_fairseq.models.veco import VecoModel
from veco_fairseq.tasks.translation import CheckedTranslationTask, VecoTranslationTask

LAYERS, DIM = 11, 16  # more than nine


def words(mask):
    dictionary = make_dictionary(mask=False)
    for token in ("[de]", "[en]", *(["<mask>"] if mask else [])):
        dictionary.add_symbol(token)
    return dictionary


def stock(layers=LAYERS, mask=True):
    """fairseq's transformer in the authors' layout, with random weights."""
    args = Namespace(encoder_layers=layers, decoder_layers=layers, encoder_embed_dim=DIM, encoder_ffn_embed_dim=2 * DIM,
                     encoder_attention_heads=4, max_source_positions=64, max_target_positions=64, dropout=0.0,
                     attention_dropout=0.0)  # fmt: skip
    ARCH_CONFIG_REGISTRY["veco_mt_large"](args)
    dictionary = words(mask)
    task = SimpleNamespace(source_dictionary=dictionary, target_dictionary=dictionary)
    return all_random(TransformerModel.build_model(args, task))


def tie(model):
    """As before fine-tuning: encoder and decoder are one, but for the cross-attention."""
    ours, theirs = model.decoder.state_dict(), model.encoder.state_dict()
    model.decoder.load_state_dict({name: theirs.get(name, tensor) for name, tensor in ours.items()})
    return model


def released(folder, model, **more):
    """The file as fairseq 0.9 wrote it, and its dict.txt."""
    folder.mkdir(exist_ok=True)
    args = Namespace(arch="veco_large", task="translation_from_pretrained_veco", encoder_attention_heads=4,
                     no_scale_embedding=model.encoder.embed_scale == 1)  # fmt: skip
    weights = {**model.state_dict(), **more}
    torch.save({"args": args, "model": weights, "optimizer_history": []}, folder / "model.pt")
    words(mask=False).save(str(folder / "dict.txt"))
    return folder / "model.pt", folder / "dict.txt"


@pytest.fixture
def model():
    torch.manual_seed(1)
    return stock()


SOURCE, SO_FAR = torch.tensor([[5, 6, 7, 2, 45]]), torch.tensor([[44, 9, 8]])


def scaled(model, scale):
    """With token embeddings times this; without --no-scale-embedding it is the square root of DIM."""
    model.encoder.embed_scale = model.decoder.embed_scale = scale
    return model


@pytest.mark.parametrize("scale", [1, 4])
@pytest.mark.parametrize("selection, chosen", [("last", [9, 10]), ("first", [0, 1]), ("10,1", [10, 1])])
def test_output_is_that_of_the_same_weights_in_stock_fairseq(tmp_path, model, selection, chosen, scale):
    heads = {"classification_heads.x.dense.weight": torch.zeros(2, 2)}
    checkpoint, dictionary = released(tmp_path / "theirs", scaled(model, scale), **heads)
    report = import_release(checkpoint, dictionary, tmp_path / "ours.pt", decoder_layers=2, layer_selection=selection)
    assert report["decoder_layers_from"] == chosen and "--encoder-layers 11" in report["finetune_options"]
    assert [group["what"] for group in report["groups"] if group["action"] == "dropped"] == [
        "decoder layers", "classification heads", "row of <mask>"]  # fmt: skip
    state = read_checkpoint(tmp_path / "ours.pt")
    copied = {tensor.data_ptr(): tensor.numel() for tensor in state["model"].values()}
    counted = [(group["tensors"], group["parameters"]) for group in report["groups"] if group["action"] == "copied"]
    assert [sum(column) for column in zip(*counted)] == [len(copied), sum(copied.values())]
    task = SimpleNamespace(source_dictionary=words(mask=False), target_dictionary=words(mask=False))
    imported = TransformerModel.build_model(state["cfg"]["model"], task).eval()
    imported.load_state_dict(state["model"], strict=True)

    model.decoder.layers = torch.nn.ModuleList(model.decoder.layers[number] for number in chosen)
    with torch.no_grad():
        expected, _ = model(SOURCE, torch.tensor([5]), SO_FAR)
        found, _ = imported(SOURCE, torch.tensor([5]), SO_FAR)
    assert torch.allclose(found, expected[..., :-1], atol=1e-6)  # without <mask>


def write_data(folder):
    words(mask=False).save(str(folder / "dict.en.txt"))
    words(mask=False).save(str(folder / "dict.de.txt"))
    for lang, lines in (("en", [[5, 6, 7], [8], [9, 10]]), ("de", [[20], [21, 22], [23]])):
        write_tokens(folder / f"test.en-de.{lang}", lines)


def test_task_makes_the_batches_of_stock_fairseq_with_language_tokens(tmp_path):
    write_data(tmp_path)
    defaults = {"dataset_impl": "mmap", "required_seq_len_multiple": 1}
    config = TranslationConfig(data=str(tmp_path), source_lang="en", target_lang="de", **defaults)
    task = VecoTranslationTask.setup_task(config)
    task.load_dataset("test")
    ours, dictionary = task.dataset("test"), words(mask=False)
    theirs = load_langpair_dataset(str(tmp_path), "test", "en", dictionary, "de", dictionary, False, "mmap", 1, True,
                                   False, 1024, 1024, append_source_id=True, shuffle=False)  # fmt: skip
    assert ours.sizes.tolist() == theirs.sizes.tolist()
    found, expected = (data.collater([data[i] for i in range(3)]) for data in (ours, theirs))
    assert torch.equal(found["target"], expected["target"]) and found["target"].eq(44).any(1).all()
    for name, tensor in expected["net_input"].items():
        assert torch.equal(found["net_input"][name], tensor), name


def test_fairseq_generate_and_translate(tmp_path, model, run):
    """The same hypotheses as stock fairseq's beam search that begins and ends with the target's token."""
    checkpoint, dictionary = released(tmp_path / "theirs", model)
    import_release(checkpoint, dictionary, tmp_path / "ours.pt", source_lang="en", target_lang="de")
    write_data(tmp_path)
    generate = ("fairseq-generate", tmp_path, "--user-dir", "veco_fairseq", "--path", tmp_path / "ours.pt", "-s", "en",
                "-t", "de", "--beam", "2", "--max-len-b", "9", "--max-len-a", "0", "--cpu")  # fmt: skip
    with open(tmp_path / "source", "w+") as source:
        source.write("w1 w2 w3\nw4\nw5 w6\n")
        source.seek(0)
        interactive = run("fairseq-interactive", *generate[1:], stdin=source)
    assert interactive.returncode == 0, interactive.stderr
    result = run(*generate)  # --task translation, which sees that the dictionaries have both tokens
    assert result.returncode == 0, result.stderr
    assert result.stdout == run(*generate, "--task", "veco_translation").stdout
    found, interactively = (
        dict(line.split("\t")[::2] for line in output.splitlines() if line.startswith("H-"))
        for output in (result.stdout, interactive.stdout)
    )
    assert list(found.values()) == list(interactively.values()) and len(found) == 3
    assert "fine-tuned" not in result.stderr + interactive.stderr  # which is not known of another's model
    symbols = words(mask=False)
    without_mask = stock(mask=False)
    rows = without_mask.state_dict()
    without_mask.load_state_dict({name: tensor[: len(rows[name])] for name, tensor in model.state_dict().items()})
    generator = SequenceGenerator([without_mask], symbols, beam_size=2, max_len_a=0, max_len_b=9, eos=44)
    for number, source in enumerate(([5, 6, 7], [8], [9, 10])):
        tokens = torch.tensor([[*source, 2, 45]])
        sample = {"net_input": {"src_tokens": tokens, "src_lengths": torch.tensor([tokens.size(1)])}}
        (hypotheses,) = generator.generate([without_mask], sample)
        expected = symbols.string(hypotheses[0]["tokens"], extra_symbols_to_ignore={44})
        assert found[f"H-{number}"] == expected
    ours = Translator(
        [tmp_path / "ours.pt"], model=Words(), data=tmp_path, search=GenerationConfig(beam=2, max_len_a=0, max_len_b=9), cpu=True
    )
    assert ours.translate(["w1 w2 w3", "w4", "w5 w6"]) == [found[f"H-{number}"] for number in range(3)]


def test_which_task_translation_is(tmp_path, caplog):
    """fairseq's own with a look at the checkpoint, or with language tokens where both dictionaries have them."""
    write_data(tmp_path)
    config = TranslationConfig(data=str(tmp_path), source_lang="en", target_lang="de")
    assert type(TASK_REGISTRY["translation"].setup_task(config)) is VecoTranslationTask
    config.num_batch_buckets = 1
    for option, value in (("num_batch_buckets", 1), ("truncate_source", True)):
        setattr(config, option, value)
        with pytest.raises(UserError, match=f"--{option.replace('_', '-')}: does not work with language tokens"):
            VecoTranslationTask.setup_task(config)
    make_dictionary(5, mask=False).save(str(tmp_path / "dict.de.txt"))
    assert type(TASK_REGISTRY["translation"].setup_task(config)) is CheckedTranslationTask
    assert "only one of [en] and [de] is in the dictionaries" in caplog.text
    with pytest.raises(UserError, match=r"\[de\]: is not in the dictionary"):
        VecoTranslationTask.setup_task(config)


def test_a_checkpoint_of_another_dictionary_or_direction(tmp_path):
    write_data(tmp_path)
    task, back = (
        TASK_REGISTRY["translation"].setup_task(TranslationConfig(data=str(tmp_path), source_lang=a, target_lang=b))
        for a, b in (("en", "de"), ("de", "en"))
    )
    state = task.state_dict()
    task.load_state_dict(state)
    task.load_state_dict({})  # of stock fairseq
    back.resume_task_state(state, "x.pt")  # training may go on from it
    with pytest.raises(UserError, match="the checkpoint translates from en to de: check -s de and -t en"):
        back.load_state_dict(state)
    turned = [*state["symbols"][:5], *state["symbols"][:4:-1]]  # of the same size
    with pytest.raises(UserError, match=r"x.pt: was .* of 46 tokens where .*dict.en.txt .*: token 5 is '.en.' there"):
        task.resume_task_state({"symbols": turned}, "x.pt")
    with pytest.raises(UserError, match="dict.en.txt"):
        task.resume_task_state({**state, "source_symbols": turned}, "x.pt")
    make_dictionary(5, mask=False).save(str(tmp_path / "dict.de.txt"))
    config = TranslationConfig(data=str(tmp_path), source_lang="en", target_lang="de")
    separate = TASK_REGISTRY["translation"].setup_task(config)
    separate.load_state_dict(separate.state_dict())
    with pytest.raises(UserError, match="check -s de and -t en"):  # and not that the dictionaries differ
        back.load_state_dict(separate.state_dict())


def test_bleu_in_validation_does_not_count_the_language_token(tmp_path):
    write_data(tmp_path)
    config = TranslationConfig(data=str(tmp_path), source_lang="en", target_lang="de", eval_tokenized_bleu=True)
    task, symbols = VecoTranslationTask.setup_task(config), words(mask=False)
    en, de = symbols.index("[en]"), symbols.index("[de]")
    task.tokenizer = None
    hypotheses = iter([[[{"tokens": torch.tensor([5, 6, 7, 8, de])}]]])
    generator = SimpleNamespace(generate=lambda *args, **kwargs: next(hypotheses))
    sample = {"target": torch.tensor([[5, 6, 7, 9, 2, de]]), "net_input": {}}
    assert en != de
    bleu = task._inference_with_bleu(generator, sample, None)
    assert (bleu.sys_len, bleu.ref_len, bleu.counts) == (4, 4, [3, 2, 1, 0])


@pytest.mark.parametrize("scale", [1, 4])
def test_back_to_pretraining(tmp_path, model, scale):
    """H of the result is the encoder's output, and S the decoder's without its causal mask."""
    checkpoint, dictionary = released(tmp_path / "theirs", tie(scaled(model, scale)))
    groups = back_to_pretraining(checkpoint, dictionary, tmp_path / "pretrained.pt")
    assert [group.action for group in groups] == ["copied", "new"]
    pretrained = read_pretrained(tmp_path / "pretrained.pt")
    assert pretrained.symbols[-3:] == ["[de]", "[en]", "<mask>"]
    veco = VecoModel.build_model(pretrained.model, SimpleNamespace(source_dictionary=words(mask=True)))
    veco.load_state_dict(pretrained.weights, strict=True)
    veco.eval()
    with torch.no_grad():
        memory = model.encoder(SOURCE, torch.tensor([5]))
        assert torch.allclose(veco.unplugged(SOURCE), memory["encoder_out"][0].transpose(0, 1), atol=1e-5)
        expected, _ = model.decoder.extract_features(SO_FAR, memory, full_context_alignment=True)
        assert torch.allclose(veco.plugged(SO_FAR, veco.unplugged(SOURCE), SOURCE), expected, atol=1e-5)


def test_a_pretraining_checkpoint_with_gaps_is_refused(tmp_path, model):
    checkpoint, dictionary = released(tmp_path / "theirs", tie(model))
    with changed(checkpoint) as state:
        del state["model"]["decoder.layers.3.encoder_attn_layer_norm.weight"]
    with pytest.raises(UserError, match=r"lacks 1 tensors .*layers\.3\.encoder_attn_layer_norm\.weight"):
        back_to_pretraining(checkpoint, dictionary, tmp_path / "x.pt")
    assert not (tmp_path / "x.pt").exists()


def test_a_fine_tuned_model_is_no_longer_one_encoder(tmp_path, model):
    checkpoint, dictionary = released(tmp_path / "theirs", model)
    with pytest.raises(UserError, match=r"decoder\.\S+ is not the encoder's: the model was fine-tuned"):
        back_to_pretraining(checkpoint, dictionary, tmp_path / "x.pt")
    assert not (tmp_path / "x.pt").exists()


@pytest.mark.parametrize("kept", [Namespace, dict])
def test_heads_and_activation_of_a_later_fairseq(tmp_path, model, kept):
    """... which keeps them in "cfg"; they cannot be seen in the weights."""
    checkpoint, dictionary = released(tmp_path / "theirs", model)
    state = torch.load(checkpoint, weights_only=False)
    options = kept(encoder_attention_heads=8, activation_fn="relu")
    torch.save({"args": None, "cfg": {"model": options}, "model": state["model"]}, checkpoint)
    found = read_release(checkpoint, dictionary).model
    assert (found.encoder_attention_heads, found.activation_fn) == (8, "relu")


def test_bad_input(tmp_path, model, run):
    checkpoint, dictionary = released(tmp_path / "theirs", model)
    output = tmp_path / "ours.pt"
    command = ("scripts/import_veco.py", "--checkpoint", checkpoint, "--dict", dictionary, "--output", output)
    assert "give both or none" in error_line(run(*command, "--source-lang", "en"))
    both = error_line(run(*command, "--pretraining", "--decoder-layers", "3"))
    assert "--pretraining: makes no translation model, which --decoder-layers is for" in both
    with pytest.raises(UserError, match=r"no language token \[fr\] \(there are: \[de\], \[en\]\)"):
        import_release(
            checkpoint, dictionary, output, decoder_layers=None, layer_selection="last", source_lang="en", target_lang="fr"
        )
    with pytest.raises(UserError, match="the checkpoint has 11 layers"):
        import_release(checkpoint, dictionary, output, decoder_layers=12)
    small = tmp_path / "small.txt"
    make_dictionary(5, mask=False).save(str(small))
    with pytest.raises(UserError, match="9 tokens with fairseq's four, but .* has 47 rows"):
        import_release(checkpoint, small, output)
    state = torch.load(checkpoint, weights_only=False)
    state["model"]["decoder.embed_tokens.weight"] = state["model"]["decoder.embed_tokens.weight"] + 1
    torch.save(state, tmp_path / "untied.pt")
    with pytest.raises(UserError, match="must be tied"):
        import_release(tmp_path / "untied.pt", dictionary, output)
    del state["model"]["decoder.layers.0.encoder_attn.k_proj.weight"]
    torch.save(state, tmp_path / "other.pt")
    with pytest.raises(UserError, match="is not the authors' model"):
        import_release(tmp_path / "other.pt", dictionary, output)
    result = run(*command, "--decoder-layers", "3")
    assert result.returncode == 0 and "--arch veco_mt_large " in result.stdout, result.stderr
    assert "decoder: positions, LayerNorm, layers 8, 9, 10: of the release" in result.stdout
