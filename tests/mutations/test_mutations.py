# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The measurement of what the tests notice: which tests are run, in which order, and how the table counts."""

import warnings

from mutations import AREAS, REPOSITORY, Change, by_hand
from mutations.reach import Reach, at_import, in_context, lines_before, whole_statements
from mutations.report import table
from mutations.running import in_order


def test_lines_are_followed_to_where_they_stand_now():
    old = ["a", "b", "c", "d"]
    assert lines_before(old, old) == {1: [1], 2: [2], 3: [3], 4: [4]}
    assert lines_before(old, ["a", "x", "c", "d"]) == {1: [1], 2: [2], 3: [3], 4: [4]}
    assert lines_before(old, ["a", "b", "n", "c", "d"]) == {1: [1], 2: [2, 3], 3: [3, 4], 4: [5]}  # put in between b and c
    assert lines_before(old, ["a", "d"])[4] == [2] and lines_before(old, ["a", "d"])[2] == []


def test_a_bar_stands_between_two_tests_or_in_a_name():
    names = {"a.py::one[x|y]", "a.py::two", "b.py::three[|]"}
    assert in_context("a.py::two|a.py::one[x|y]", names) == {"a.py::two", "a.py::one[x|y]"}
    assert in_context("b.py::three[|]", names) == in_context("|b.py::three[|]", names) == {"b.py::three[|]"}
    assert in_context("", names) == in_context("|", names) == in_context("a.py::skipped", names) == set()


def test_quick_tests_are_run_first_and_those_of_a_file_together():
    seconds = {"a.py::long": 60.0, "a.py::quick": 0.5, "b.py::one": 1.5, "b.py::two": 0.1, "c.py::long": 9.0}
    assert in_order(set(seconds), seconds) == ["a.py::quick", "b.py::two", "b.py::one", "c.py::long", "a.py::long"]
    looking = {"b.py::one", "c.py::long"}  # at the module that is changed
    assert in_order(set(seconds), seconds, looking) == ["b.py::one", "b.py::two", "a.py::quick", "c.py::long", "a.py::long"]


def test_what_is_run_as_a_file_is_imported_is_every_importers(tmp_path):
    path = tmp_path / "module.py"
    path.write_text("A = 1\n\n\ndef f(b=2):\n    return b\n\n\nclass C:\n    d = 3\n")
    assert [at_import(path, [line]) for line in (1, 4, 5, 9)] == [True, True, False, True]
    (tmp_path / "tests").mkdir()
    for name, text in (
        ("one", "from veco_fairseq.a.module import A"),
        ("two", "from veco_fairseq.a import other, module"),
        ("three", "from veco_fairseq import a, b"),
        ("no", "x"),
    ):
        (tmp_path / f"tests/test_{name}.py").write_text(text + "\n")
    reach = Reach(tmp_path, tmp_path / "notes")
    reach.seconds = {f"test_{name}.py::test": 1.0 for name in ("one", "two", "three", "no")}
    assert reach.importers("veco_fairseq/a/module.py") == {"test_one.py::test", "test_two.py::test"}
    assert reach.importers("veco_fairseq/b/__init__.py") == {"test_three.py::test"}


def test_what_reads_the_code_reaches_every_file():
    reach = Reach(REPOSITORY, REPOSITORY / "no notes")
    house, short = "repository/test_house.py::test_", 0.5
    names = [
        house + "all",
        house + "long[veco_fairseq/plugin.py]",
        house + "long[veco_fairseq/cli.py]",
        "data/test_plan.py::test",
    ]
    reach.seconds = {**dict.fromkeys(names, short), "repository/test_docs.py::test_five_steps": 20.0}
    assert reach.of("veco_fairseq/plugin.py", [1]) == {names[0], names[1]}


def test_the_measurements_own_tests_notice_nothing():
    """They fail where a row no longer fits the code, as in the copy that has the row's change."""
    reach = Reach(REPOSITORY, REPOSITORY / "no notes")
    ours, theirs = "mutations/test_mutations.py::test_rows", "recipes/test_recipes.py::test_steps"
    reach.seconds = dict.fromkeys((ours, theirs), 0.5)
    assert {ours, theirs} <= reach.speaking_of("recipes") and reach.of("data-bin-recipes/lib/steps.sh", [1]) == {theirs}


def test_a_line_is_reached_with_its_statement(tmp_path):
    path = tmp_path / "module.py"
    path.write_text("def f(a, b):\n    if (\n        a\n        or b\n    ):\n        return (\n            a)\n    return b\n")
    reached = {line: whole_statements(path, [line]) for line in (4, 7, 8)}
    assert reached == {4: {2, 3, 4, 5}, 7: {6, 7}, 8: {8}}


def test_a_commands_tests_are_those_of_its_script():
    reach = Reach(REPOSITORY, REPOSITORY / "no notes")
    reach.seconds = {
        f"test_command_options.py::test[{words}]": 1.0
        for words in ("score.py --lang de", "plot_scores.py", "import_veco.py --dict d")
    }
    assert reach.named_after("veco_fairseq/commands/score.py") == {"test_command_options.py::test[score.py --lang de]"}
    assert reach.named_after("veco_fairseq/commands/import_veco.py") == {"test_command_options.py::test[import_veco.py --dict d]"}
    reach.seconds |= {"test_xtreme_recipes.py::test_pawsx": 1.0, "test_toy_corpus.py::test_sizes": 1.0}
    assert reach.named_after("data-bin-recipes/xtreme/pawsx/prepare.sh") == {"test_xtreme_recipes.py::test_pawsx"}
    assert reach.named_after("data-bin-recipes/toy/generate.py") == {"test_toy_corpus.py::test_sizes"}
    assert reach.named_after("veco_fairseq/commands/plot_scores.py") == {"test_command_options.py::test[plot_scores.py]"}


def test_a_change_is_known_wherever_its_line_stands():
    """By file and lines, so that results and reasons are found again when code has moved."""
    path = "veco_fairseq/errors.py"
    code = (REPOSITORY / path).read_text(encoding="utf-8")
    first, *rest = code.splitlines(keepends=True)
    change = Change("commands", path, "".join(["# another\n", *rest]), (1,), "", "hand")
    assert change.diff == [f"-{first.rstrip()}", "+# another"]
    assert change.key == change._replace(lines=(7,), what="other words").key != change._replace(file="scripts/score.py").key


def test_every_row_made_by_hand_is_still_a_change():
    """A row whose text has moved on would be left out of every later measurement."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        changes = list(by_hand())
    assert [change.what for change in changes if not change.diff] == []
    assert len({change.key for change in changes}) == len(changes) > 600


def test_the_table_counts_what_makes_a_difference():
    results = [{"area": "models", "key": str(number), "how": how}
               for number, how in enumerate(["noticed", "noticed", "noticed", "unnoticed", "not reached", "unnoticed"])]  # fmt: skip
    rows = {row.split(" | ")[0].strip("| "): row for row in table(results, {"5": "why"}).splitlines()}
    assert rows["models"] == "| models | 6 | 1 | 3 | 2 | 60% |" and rows["all"].startswith("| all | 6 | 1 | 3 | 2 |")
    assert rows["data"] == "| data | 0 | 0 | 0 | 0 | - |" and len(rows) == 1 + 1 + len(AREAS) + 1
