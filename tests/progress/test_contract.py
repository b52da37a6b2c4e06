"""Every store keeps the contract."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from headwater.progress.memory import MemoryProgress
from headwater.progress.sqlite import SqliteProgress
from headwater.testing.progress_contract import ProgressContract
from tests.progress.stores import FilePlace, LevelsPlace, MemoryPlace, PostgresPlace, SqlitePlace


class TestMemory(ProgressContract):
    @pytest.fixture
    def place(self, tmp_path: Path) -> MemoryPlace:
        return MemoryPlace(tmp_path)

    @pytest.mark.skip(reason="there is nothing outside the process that could be damaged")
    def test_damage_is_never_read_as_absence(self) -> None:
        """Left out."""


class TestFile(ProgressContract):
    @pytest.fixture
    def place(self, tmp_path: Path) -> FilePlace:
        return FilePlace(tmp_path)


class TestSqlite(ProgressContract):
    @pytest.fixture
    def place(self, tmp_path: Path) -> SqlitePlace:
        return SqlitePlace(tmp_path)


class TestPostgres(ProgressContract):
    @pytest.fixture
    def place(self, progress_url: str) -> PostgresPlace:
        return PostgresPlace(progress_url)


class TestMemoryThenSqlite(ProgressContract):
    @pytest.fixture
    def place(self, tmp_path: Path) -> LevelsPlace:
        return LevelsPlace(MemoryProgress, SqlitePlace(tmp_path))


class TestMemoryThenPostgres(ProgressContract):
    @pytest.fixture
    def place(self, progress_url: str) -> LevelsPlace:
        return LevelsPlace(MemoryProgress, PostgresPlace(progress_url))


class TestSqliteThenPostgres(ProgressContract):
    @pytest.fixture
    def place(self, tmp_path: Path, progress_url: str) -> LevelsPlace:
        return LevelsPlace(partial(SqliteProgress, tmp_path / "front.db"), PostgresPlace(progress_url))
