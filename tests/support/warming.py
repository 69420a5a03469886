# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""What forks of a process need not do again: most of a short training's time is fairseq's configuration by hydra."""

import warnings
from copy import copy
from functools import cache

from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser

parse_rule = OverridesParser.parse_rule


def warm_up() -> None:
    """Make fairseq's configuration of some options, so that it takes half of the time from now on, here and in forks.

    hydra parses the text of each of its 260 options, of which most have their default; a text is parsed once. hydra also
    copies all of the registered options, and then again what it takes of them; only the second copy is made.
    """
    parsed = cache(lambda text, rule: parse_rule(OverridesParser.create(), text, rule))
    OverridesParser.parse_rule = lambda parser, text, rule: copy(parsed(text, rule))
    ConfigStore.__deepcopy__ = lambda store, memo: store
    words = ["data", "--task", "translation", "--arch", "transformer", "--optimizer", "adam"]
    with warnings.catch_warnings(action="ignore"):
        convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), words))
