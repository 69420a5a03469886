# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Check a data root, and show what --task camlm would do with it: sizes, sampling, batches, parameters and memory."""

import argparse
from pathlib import Path

from veco_fairseq.arguments import COUNT, FROM_0, Parser
from veco_fairseq.data.options import add_data_options
from veco_fairseq.errors import UserError
from veco_fairseq.options.flags import flag


def add_arguments(parser: Parser) -> None:
    """Add the command's options."""
    add_data_options(parser)
    parser.add_argument("--max-tokens", type=COUNT, default=16384, metavar="N", help="tokens of a batch (default: %(default)s)")
    parser.add_argument("--arch", default="veco_small", help="the model whose memory is estimated (default: %(default)s)")
    parser.add_argument("--encoder-layers", type=COUNT, metavar="N", help="as in training (default: the architecture's)")
    parser.add_argument(
        "--embed-dim", dest="table_dim", type=COUNT, metavar="N", help="as in training (default: the model's width)"
    )
    parser.add_argument("--autocast", choices=["none", "bf16"], default="none", help="as in training (default: %(default)s)")
    parser.add_argument(
        "--device", choices=["cpu", "cuda"], help="where the memory is estimated for (default: a GPU, if there is one)"
    )
    parser.add_argument("--checkpoint-activations", action="store_true", help="as in training")
    parser.add_argument("--relative-position-bias", action="store_true", help="as in training")
    parser.add_argument("--generator-layers", type=COUNT, metavar="L", help="as in training; only for xlme_*")
    parser.add_argument("--generator-embeddings", choices=["shared", "own"], help="as in training; only for xlme_*")
    parser.add_argument(
        "--examples", type=FROM_0, default=0, metavar="N", help="masked pairs to show of each language and pair (default: 0)"
    )


def main(args: argparse.Namespace) -> None:
    from fairseq import utils
    from fairseq.models import ARCH_MODEL_REGISTRY

    from veco_fairseq.cost.inspection import inspect_root
    from veco_fairseq.models.base import architecture
    from veco_fairseq.models.xlme import XlmeModel
    from veco_fairseq.modules.device import usual_device
    from veco_fairseq.options import borders
    from veco_fairseq.tasks.camlm_options import check_camlm

    args.seed, args.update_freq = 1, [1]
    borders.check_options(vars(args))
    check_camlm(args)
    of_generator = ("generator_layers", "generator_embeddings")
    names = ("encoder_layers", "table_dim", "autocast", "checkpoint_activations", "relative_position_bias", *of_generator)
    chosen = {name: getattr(args, name) for name in names}
    for name in of_generator:
        if chosen[name] is not None and not issubclass(ARCH_MODEL_REGISTRY.get(args.arch, XlmeModel), XlmeModel):
            raise UserError(f"{flag(name)}: is an option of --arch xlme_*, not of {args.arch}")
    model = architecture(args.arch, **{name: value for name, value in chosen.items() if value is not None})
    device = args.device or usual_device()
    for root in map(Path, utils.split_paths(args.data)):
        print(f"{root}:")
        for line in inspect_root(root, args, args.max_tokens, model=model, device=device, examples=args.examples):
            print(line, flush=True)
