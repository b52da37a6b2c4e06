"""Keeps words out of texts that people read, and gerunds out of file names: `python tools/lint_words.py`.

Checks string literals, comments and docstrings of the packages in `tools/words.toml`, and the pages listed there.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Rules:
    """The content of words.toml."""

    words: Sequence[str]  # regular expressions
    participles: Sequence[str] = ()
    nouns: Sequence[str] = ()  # that end in -ing
    packages: Sequence[str] = ()
    pages: Sequence[str] = ()
    allowed: Mapping[str, Sequence[str]] = field(default_factory=dict)  # path → words

    def is_noun(self, stem: str) -> bool:
        last = stem.strip("_").rpartition("_")[2]
        return last not in self.participles and (not last.endswith("ing") or last in self.nouns)


def main() -> int:
    """Print every problem; 1 if there is one."""
    rules = Rules(**tomllib.loads((ROOT / "tools" / "words.toml").read_text(encoding="utf-8")))
    problems = [problem for file in files(ROOT, rules) for problem in check(file, rules, ROOT)]
    sys.stderr.writelines(f"{problem}\n" for problem in problems)
    return 1 if problems else 0


def files(root: Path, rules: Rules) -> Iterator[Path]:
    for path in (*rules.packages, *rules.pages):
        inside = [root / path] if (root / path).is_file() else sorted((root / path).rglob("*"))
        yield from (file for file in inside if file.suffix in {".py", ".md"})


def check(file: Path, rules: Rules, root: Path) -> Iterator[str]:
    """The problems of the file's name and of its texts, with their lines."""
    name = file.relative_to(root).as_posix()
    if file.suffix == ".py" and not rules.is_noun(file.stem):
        yield f"{name}:1: the file name is a gerund or participle; use a noun"
    # Words of one expression may stand on two lines.
    expressions = (f"(?:{word})".replace(" ", r"\s+") for word in rules.words)
    pattern = re.compile("|".join(expressions), re.IGNORECASE)
    text = file.read_text(encoding="utf-8")
    for line, sentence in python_texts(text) if file.suffix == ".py" else [(1, text)]:
        for match in pattern.finditer(sentence):
            if " ".join(match[0].lower().split()) not in rules.allowed.get(name, ()):
                at = line + sentence.count("\n", 0, match.start())
                yield f"{name}:{at}: '{match[0]}'; name the actor and use the field's word"


def python_texts(text: str) -> Iterator[tuple[int, str]]:
    """Comments, string literals and docstrings, with the line of each."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


if __name__ == "__main__":
    sys.exit(main())
