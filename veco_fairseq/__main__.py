# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The program ``veco COMMAND ...``, also ``python -m veco_fairseq COMMAND ...``."""

import sys

try:
    import difflib
    from collections.abc import Sequence
    from typing import NoReturn

    from veco_fairseq import __version__
    from veco_fairseq.arguments import Parser, end_with
    from veco_fairseq.cli import run
    from veco_fairseq.commands import GROUPS, module, start
except KeyboardInterrupt:  # from here on, run knows it
    print("veco: interrupted", file=sys.stderr)
    sys.exit(130)

NAMES = [name for commands in GROUPS.values() for name in commands]
USAGE = """usage: veco [--user-dir DIR] COMMAND ...

Cross-lingual pre-training with VECO: the commands beside fairseq-train --user-dir veco_fairseq.
"""
COMPLETION = """usage: veco completion [SHELL]

Print a completion of all commands for a shell: bash (default), zsh, tcsh and others. It needs pip install shtab.
In bash, this turns it on: source <(veco completion bash)"""


def overview(names: Sequence[str] = NAMES) -> str:
    """Return what ``veco --help`` prints: the commands with these names, grouped by a user's jobs."""
    width = max(map(len, names))
    lines = [USAGE]
    for purpose, commands in GROUPS.items():
        if told := [f"  {name:{width}}  {what}" for name, what in commands.items() if name in names]:
            lines += [f"to {purpose}:", *told, ""]
    lines.append("veco --user-dir DIR COMMAND imports code of your own first, as fairseq-train does.")
    lines.append("veco COMMAND --help prints a command's options; veco completion bash prints a completion for the shell.")
    lines.append("The recipes, data-bin-recipes/, are in the repository: they are not installed.")
    return "\n".join(lines)


def completion(shell: str) -> str:
    """Return a shell's completion of all commands, made by shtab.

    Raises:
        SystemExit: shtab is not installed, or knows no such shell.
    """
    try:
        import shtab
    except ImportError:
        end_with("completion needs the package shtab: pip install shtab")
    if shell not in shtab.SUPPORTED_SHELLS:
        end_with(f"completion {shell}: shtab knows {', '.join(shtab.SUPPORTED_SHELLS)}")
    whole = Parser(prog="veco")
    commands = whole.add_subparsers()
    plots = commands.add_parser("plot", help="pictures").add_subparsers()
    for name, what in (item for of_purpose in GROUPS.values() for item in of_purpose.items()):
        group, _, last = name.rpartition(" ")
        module(name).add_arguments((plots if group else commands).add_parser(last, help=what))
    return shtab.complete(whole, shell)


def main() -> NoReturn:
    """Find the command and run it."""
    words, user_dir = sys.argv[1:], None
    if words[:1] == ["--user-dir"] and len(words) > 1:
        user_dir, words = words[1], words[2:]
    if not words or words[0] in ("-h", "--help"):
        run(lambda: print(overview()) or (0 if words else 2))
    if words[0] in ("-V", "--version"):
        print(f"veco_fairseq {__version__}")
        sys.exit(0)
    sys.argv[0] = "veco"
    if words[0] == "completion" and words[1:2] in (["-h"], ["--help"]):
        run(lambda: print(COMPLETION))
    if words[0] == "completion":
        run(lambda: print(completion(words[1] if len(words) > 1 else "bash")))
    group = [known for known in NAMES if known.startswith(f"{words[0]} ")]
    size = 2 if group else 1
    if group and words[1:] in (["-h"], ["--help"]):
        run(lambda: print(overview(group)))
    name = " ".join(words[:size])
    if name not in NAMES:
        near = difflib.get_close_matches(name, NAMES, n=1, cutoff=0.5) or difflib.get_close_matches(
            words[0], NAMES, n=1, cutoff=0.5
        )
        hint = (
            f"give {' or '.join(group)}"
            if group and size > len(words)
            else f"did you mean {near[0]}?"
            if near
            else "veco --help lists all commands"
        )
        end_with(f"{name}: no such command: {hint}")
    sys.argv = [f"veco {name}", *words[size:]]
    start(name, user_dir)


if __name__ == "__main__":
    main()
