"""Every case of the table, through every transport that can carry it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.sources.formats import kafka, objects
from tests.sources.formats.case import KAFKA, OBJECTS, Case, Outcome
from tests.sources.formats.tables import CASES


def carried(transport: str) -> list[object]:
    return [pytest.param(case, id=f"{case.format}-{case.name}") for case in CASES if case.carried_by(transport)]


def check(case: Case, transport: str, way: str, actual: Outcome) -> None:
    expected = case.expected(transport)
    assert actual.by(expected).shown() == expected.shown(), way
    if transport in case.otherwise:
        why = case.otherwise[transport].why
        assert actual.by(case.outcome).shown() != case.outcome.shown(), (
            f"it is as it should be: take the mark away ({why})"
        )


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One after the other: pytest's own folder for every test takes longer than most cases."""
    base = tmp_path_factory.mktemp("formats")
    return (base / str(number) for number in count())


@pytest.fixture
def folder(folders: Iterator[Path]) -> Path:
    folder = next(folders)
    folder.mkdir()
    return folder


@pytest.mark.parametrize("case", carried(OBJECTS))
def test_a_case_as_objects(folder: Path, case: Case):
    for way, actual in objects.outcomes(case, folder):
        check(case, OBJECTS, way, actual)


@pytest.mark.parametrize("case", carried(KAFKA))
def test_a_case_as_messages(folder: Path, case: Case):
    for way, actual in kafka.outcomes(case, folder):
        check(case, KAFKA, way, actual)


def of_one_schema() -> list[object]:
    """Cases with the same schema and options, which can be objects of one window."""
    groups: dict[str, list[Case]] = {}
    for case in CASES:
        if case.schema is None or len(case.windows) > 1 or not case.carried_by(OBJECTS) or case.expected(OBJECTS).error:
            continue
        groups.setdefault(f"{case.format} {case.schema} {case.options}", []).append(case)
    return [pytest.param(group, id=name) for name, group in groups.items() if len(group) > 1]


@pytest.mark.parametrize("cases", of_one_schema())
def test_different_objects_of_a_window_do_not_disturb_each_other(folder: Path, cases: list[Case]):
    by_case = objects.neighbours(cases, folder)
    for case in cases:
        check(case, OBJECTS, case.name, by_case[case.name])


def test_names_of_cases_are_unique():
    names = [(case.format, case.name) for case in CASES]
    assert len(set(names)) == len(names)
