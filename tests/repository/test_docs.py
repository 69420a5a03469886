# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The documents: their commands run, their options and links are there, and docs/options.md is what the code says.

A block of a document begins with ```bash run, ```bash run slow, or ```bash and a reason in brackets why no test runs
it. A block of ```python is run, too. Here the blocks are run by bash with fewer updates and less text; the test marked
slow runs them as they stand.
"""

import argparse
import ast
import inspect
import os
import re
import shlex
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from subprocess import PIPE, STDOUT

import pytest
from conftest import REPOSITORY
from fairseq import options
from support.starting import Forks

from veco_fairseq.__main__ import NAMES
from veco_fairseq.commands import parser

GUIDES = sorted(path.relative_to(REPOSITORY).as_posix() for path in (REPOSITORY / "docs/guides").glob("*.md"))
PAGES = [*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/**/*.md"), *REPOSITORY.glob("data-bin-recipes/**/*.md")]
README_LINES = 120
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HOW = re.compile(r"bash (run|run slow|\(.+\))")
# What a block is made smaller by. The text is large enough for its vocabulary.
SMALLER = (
    (r"(generate\.py --output \S+)", r"\1 --pairs 400 --finetune-pairs 64 --valid 24 --test 16 --mono 120"),
    (r"--(valid-lines) \d+", r"--\1 24"),
    (r"--(vocab-size) \d+", r"--\1 200"),
    (r"--(keep) \d+", r"--\1 150"),
    (r"--(max-update|total-num-update) \d+", r"--\1 4"),
    (r"--(warmup-updates|save-interval-updates|log-interval|freeze-backbone-updates) \d+", r"--\1 1"),
    (r"--(max-epoch) \d+", r"--\1 1"),
    (r"--(beam) \d+", r"--\1 1"),
    (r"--(bootstrap) \d+", r"--\1 20"),
    (r"(count-operations \S+)", r"\1 --sample-updates 2"),
)


def blocks(document: str) -> list[tuple[str, str]]:
    """(how it is marked, its text) of every block of commands. One of Python is run, too, as it stands there."""
    found = []
    for info, block in FENCE.findall((REPOSITORY / document).read_text(encoding="utf-8")):
        if info == "python":
            found.append(("bash run", f"python - <<'EOF'\n{block}EOF\n"))
        elif info.split()[:1] == ["bash"]:
            found.append((info.strip(), block))
    return found


def commands(block: str) -> list[list[str]]:
    """The words of each command of a block, without comments."""
    lines = block.replace("\\\n", " ").splitlines()
    found = [shlex.split(line, comments=True) for line in lines if "EOF" not in line and line.count("'") % 2 == 0]
    return [words for words in found if words]


def option_names(of: argparse.ArgumentParser) -> set[str]:
    """All options of a parser and its sub-commands."""
    found = set(of._option_string_actions)
    for action in of._actions:
        if isinstance(action, argparse._SubParsersAction):
            found.update(*map(option_names, action.choices.values()))
    return found


# ---------------------------------------------------------------------------------------------------------------------
# The commands run


class Shell:
    """bash in a folder that looks like the repository, with commands of ours and of fairseq that start at once.

    Attributes:
        folder: the folder; README's commands have run in it.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        for name in ("veco_fairseq", "scripts", "data-bin-recipes", "docs"):
            (folder / name).symlink_to(REPOSITORY / name)
        (folder / ".venv/bin").mkdir(parents=True)
        (folder / ".venv/bin/activate").touch()  # what it does is done already
        self.forks = Forks(folder)

    def run(self, document: str) -> None:
        """Run what a document marks with ``run``, made smaller."""
        for how, block in blocks(document):
            if how != "bash run":
                continue
            for pattern, smaller in SMALLER:
                block = re.sub(pattern, smaller, block)
            result = self.forks.bash("-c", f"set -euo pipefail\n{block}", cwd=self.folder, stdout=PIPE, stderr=STDOUT)
            assert result.returncode == 0, f"{document}: {block.splitlines()[0]} ...: {result.stdout[-1500:]}"


@pytest.fixture(scope="module")
def shell(tmp_path_factory):
    shell = Shell(tmp_path_factory.mktemp("docs"))
    try:
        shell.run("README.md")
        yield shell
    finally:
        shell.forks.close()


def test_five_steps(shell):
    assert (shell.folder / "toy/test.bb").read_text().count("\n") == 16  # a line for each of the test set


@pytest.mark.parametrize("guide", GUIDES)
def test_guide(guide, shell):
    shell.run(guide)


@pytest.mark.slow
def test_every_block_as_it_stands(tmp_path):
    for name in ("veco_fairseq", "scripts", "data-bin-recipes", "docs"):
        (tmp_path / name).symlink_to(REPOSITORY / name)
    (tmp_path / ".venv").symlink_to(sys.prefix)
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    for document in ("README.md", *GUIDES):
        for how, block in blocks(document):
            if how in ("bash run", "bash run slow"):
                result = subprocess.run(
                    ["bash", "-euo", "pipefail", "-c", block], cwd=tmp_path, env={**os.environ, "PATH": path},
                    stdin=subprocess.DEVNULL, capture_output=True, text=True,
                )  # fmt: skip
                assert result.returncode == 0, f"{document}:\n{block}\n{result.stderr[-3000:]}"


# ---------------------------------------------------------------------------------------------------------------------
# What can be told without running them


@pytest.mark.parametrize("document", ["README.md", *GUIDES])
def test_every_block_says_whether_it_is_run(document):
    marks = [how for how, _ in blocks(document)]
    assert [how for how in marks if not HOW.fullmatch(how)] == []


@pytest.mark.parametrize("guide", GUIDES)
def test_guide_begins_with_a_command_and_its_output(guide):
    fences = FENCE.findall((REPOSITORY / guide).read_text(encoding="utf-8"))
    assert fences[0][0].startswith("bash") and fences[1][0] == "text"


def test_options_are_there():
    known = {name: option_names(parser(name)) for name in NAMES}
    train = set()
    words = ["x", "--user-dir", str(REPOSITORY / "veco_fairseq"), "--optimizer", "adam"]
    for task, criterion, arch, scheduler in (
        ("camlm", "camlm", "veco_tiny", "polynomial_decay"), ("camlm", "replaced_token", "xlme_tiny", "fixed"),
        ("veco_nlu", "veco_nlu", "veco_nlu_tiny", "linear_by_epoch"),
        ("translation", "label_smoothed_cross_entropy", "veco_transformer_tiny", "polynomial_decay"),
        ("veco_multilingual_translation", "label_smoothed_cross_entropy", "veco_mt_tiny", "polynomial_decay"),
    ):  # fmt: skip
        chosen = ["--task", task, "--criterion", criterion, "--arch", arch, "--lr-scheduler", scheduler]
        train |= all_options(options.get_training_parser(task), [*words, *chosen])
    known |= {
        "fairseq-train": train,
        "fairseq-preprocess": option_names(options.get_preprocessing_parser()),
        "fairseq-generate": option_names(options.get_generation_parser()),
        "fairseq-interactive": option_names(options.get_generation_parser(interactive=True)),
        "fairseq-validate": option_names(options.get_validation_parser()),
    }
    wrong, seen = [], set()
    for document in ("README.md", *GUIDES):
        for _, block in blocks(document):
            for line in commands(block):
                name = line[0]
                if name == "veco":
                    name, line = next(
                        ((n, line) for n in NAMES if line[1 : 1 + len(n.split())] == n.split()), (" ".join(line[:2]), line)
                    )
                elif name == "bash" and line[1:2] == ["scripts/launch.sh"]:
                    name = "fairseq-train"
                    line = [word for word in line if word not in ("--workers", "--nodes", "--node-rank", "--master")]
                if name not in known:
                    wrong += [f"{document}: {name}: no such command"] if line[0] == "veco" and line[1] != "completion" else []
                    continue
                seen.add(name)
                wrong += [f"{document}: {name} has no {word}" for word in line[1:]
                          if word.startswith("--") and word != "--" and word.partition("=")[0] not in known[name]]  # fmt: skip
    assert wrong == []
    assert {"fairseq-train", *NAMES} - seen == set()  # each command is shown somewhere


def all_options(of: argparse.ArgumentParser, words: list[str]) -> set[str]:
    """The options of fairseq-train with a task, criterion, model and schedule."""
    known, _ = of.parse_known_args(words)
    from fairseq.models import ARCH_MODEL_REGISTRY
    from fairseq.registry import REGISTRIES
    from fairseq.tasks import TASK_REGISTRY

    ARCH_MODEL_REGISTRY[known.arch].add_args(of)
    for name, registry in REGISTRIES.items():
        choice = getattr(known, name, None)
        if choice is not None and hasattr(registry["registry"][choice], "add_args"):
            registry["registry"][choice].add_args(of)
    TASK_REGISTRY[known.task].add_args(of)
    return option_names(of)


def anchor(heading: str) -> str:
    """What GitHub calls the place of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower()).strip().replace(" ", "-")


def test_links():
    wrong = []
    for page in PAGES:
        text = re.sub(r"^( {4}|```).*$", "", FENCE.sub("", page.read_text(encoding="utf-8")), flags=re.MULTILINE)
        for link in re.findall(r"\]\(([^)\s]+)\)", text):
            path, _, place = link.partition("#")
            if "://" in link:
                continue
            target = (page.parent / path).resolve() if path else page
            if not target.exists():
                wrong.append(f"{page.relative_to(REPOSITORY)}: {link}")
            elif place:
                headings = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.MULTILINE)
                if place not in map(anchor, headings):
                    wrong.append(f"{page.relative_to(REPOSITORY)}: {link}: no such heading")
    assert wrong == []


def test_readme_is_short():
    assert len((REPOSITORY / "README.md").read_text(encoding="utf-8").splitlines()) <= README_LINES


def test_options_page_is_up_to_date():
    # in a process of its own, as its command is run: what other tests have registered with fairseq is not in it
    made = subprocess.run(
        [sys.executable, "-c", "import runpy; print(runpy.run_path('scripts/make_options.py')['page'](), end='')"],
        cwd=REPOSITORY, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr[-3000:]
    page = (REPOSITORY / "docs/options.md").read_text(encoding="utf-8")
    assert made.stdout == page, "run python scripts/make_options.py"


def test_api():
    text = (REPOSITORY / "docs/api.md").read_text(encoding="utf-8")
    code = "\n".join(line[4:] for line in text.splitlines() if re.match(r" {4}\S| {5,}", line))
    functions, called = {}, set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom):
            module = import_module(node.module)
            functions.update({alias.name: getattr(module, alias.name) for alias in node.names})
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in functions:
            keywords = {keyword.arg: None for keyword in node.keywords}
            inspect.signature(functions[node.func.id]).bind(*node.args, **keywords)
            called.add(node.func.id)
    assert {"convert_to_seq2seq", "Translator", "score", "trim", "export_ct2"} <= called
