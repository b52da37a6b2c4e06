"""The lint of words: what it reads, what it reports, and what it lets pass."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "tools" / "lint_words.py"
WORDS = [r"\bnobody\b", r"\btold\b"]


@pytest.fixture(scope="module")
def lint():
    spec = importlib.util.spec_from_file_location("lint_words", SOURCE)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where a dataclass looks for the names in its annotations
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def test_comments_docstrings_and_literals_are_read_and_names_are_not(lint, tmp_path: Path) -> None:
    file = tmp_path / "rows.py"
    file.write_text('"""For nobody."""\n\ntold = 1  # Told twice\nprint(f"{told} nobody", told)\n')
    problems = [problem.partition(";")[0] for problem in lint.check(file, lint.Rules(WORDS), tmp_path)]
    assert sorted(problems) == ["rows.py:1: 'nobody'", "rows.py:3: 'Told'", "rows.py:4: 'nobody'"]


def test_an_allowed_word_passes_in_its_file(lint, tmp_path: Path) -> None:
    file = tmp_path / "page.md"
    file.write_text("Nobody came.\nNobody was told.\n")
    rules = lint.Rules(WORDS, allowed={"page.md": ["nobody"]})
    assert [problem.partition(";")[0] for problem in lint.check(file, rules, tmp_path)] == ["page.md:2: 'told'"]


def test_an_expression_over_two_lines_is_found(lint, tmp_path: Path) -> None:
    file = tmp_path / "page.md"
    file.write_text("Rows are set\naside.\n")
    assert len(list(lint.check(file, lint.Rules([r"\bset aside\b"]), tmp_path))) == 1


@pytest.mark.parametrize("name", ["opening", "found", "split_found", "_reading"])
def test_gerunds_and_participles_are_not_file_names(lint, name: str) -> None:
    assert not lint.Rules([], participles=["found"], nouns=["landing"]).is_noun(name)


@pytest.mark.parametrize("name", ["journal", "landing", "reject_landing", "__init__"])
def test_nouns_are_file_names(lint, name: str) -> None:
    assert lint.Rules([], participles=["found"], nouns=["landing"]).is_noun(name)
