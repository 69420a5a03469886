# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""What forks of a process need not do again: most of a short training's time is fairseq's configuration by hydra."""

import inspect
import sys
import warnings
from collections.abc import Iterator
from copy import copy, deepcopy
from functools import cache

from fairseq import options
from fairseq.dataclass import utils
from hydra._internal.config_loader_impl import create_defaults_list
from hydra._internal.config_repository import CachingConfigRepository
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

HYDRA = sys.modules["hydra.initialize"]  # hydra has a class of this name, too
parse_rule = OverridesParser.parse_rule
composed: dict[tuple[str, ...], tuple[DictConfig, dict[str, str]]] = {}


def leaves(value, name: str = "") -> Iterator[tuple[str, str]]:
    """The full names of what a tree of dictionaries holds, such as task.data, and how each value is written."""
    if isinstance(value, dict):
        for key, below in value.items():
            yield from leaves(below, f"{name}.{key}" if name else key)
    else:
        yield name, repr(value)


def compose(config_name: str, overrides: list[str], strict: bool) -> DictConfig:
    """hydra's own, without its own settings, which that one composes, too, and drops; of the same choices it is made once.

    A choice is of a group, such as task=camlm. The other overrides are values, such as task.data=DATA. Most are the defaults.
    """
    loader = GlobalHydra.instance().config_loader()
    parsed = OverridesParser.create().parse_overrides(overrides)
    choices = [one for one in parsed if "." not in one.key_or_group]
    chosen = tuple(one.input_line for one in choices)
    if chosen not in composed:
        repository = CachingConfigRepository(loader.repository)
        found = create_defaults_list(repository, config_name, choices, prepend_hydra=False, skip_missing=False)
        config = loader._compose_config_from_defaults_list(found.defaults, repository)
        OmegaConf.set_struct(config, True)
        composed[chosen] = config, dict(leaves(OmegaConf.to_container(config, resolve=False)))
    config, defaults = deepcopy(composed[chosen][0]), composed[chosen][1]
    values = [one for one in parsed if "." in one.key_or_group and defaults.get(one.key_or_group) != repr(one.value())]
    loader._apply_overrides_to_config(values, config)
    OmegaConf.set_struct(config, strict)
    config.pop("hydra")
    return config


def warm_up(*commands: str) -> None:
    """Make fairseq's configuration of some options, so that it takes a quarter of the time from now on, here and in forks.

    hydra parses the text of each of its 260 options, of which most have their default; a text is parsed once. hydra also
    copies all of the registered options, and then again what it takes of them; only the second copy is made. It looks through
    the whole stack for the file that calls it, which is fairseq's.

    Args:
        commands: options of fairseq-train, such as "--task camlm", whose choices are composed here.
    """
    inspect.getmodule(sys._getframe())  # notes the files of all modules, of which PyTorch asks it for each new operation
    parsed = cache(lambda text, rule: parse_rule(OverridesParser.create(), text, rule))
    OverridesParser.parse_rule = lambda parser, text, rule: copy(parsed(text, rule))
    ConfigStore.__deepcopy__ = lambda store, memo: store
    HYDRA.detect_calling_file_or_module_from_stack_frame = lambda depth: (utils.__file__, utils.__name__)
    utils.compose = compose
    with warnings.catch_warnings(action="ignore"):
        for command in ("--task translation --arch transformer --optimizer adam", *commands):
            words = ["data", *command.split()]
            utils.convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), words))
