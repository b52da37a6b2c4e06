"""Every store keeps the contract."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from headwater.progress.memory import MemoryProgress
from headwater.progress.sqlite import SqliteProgress
from headwater.testing.progress_contract import StoreContract
from tests.progress.stores import FileTarget, LevelsTarget, MemoryTarget, PostgresTarget, SqliteTarget


class TestMemory(StoreContract):
    @pytest.fixture
    def target(self, tmp_path: Path) -> MemoryTarget:
        return MemoryTarget(tmp_path)

    @pytest.mark.skip(reason="there is nothing outside the process that could be damaged")
    def test_damage_is_never_read_as_absence(self) -> None:
        """Left out."""


class TestFile(StoreContract):
    @pytest.fixture
    def target(self, tmp_path: Path) -> FileTarget:
        return FileTarget(tmp_path)


class TestSqlite(StoreContract):
    @pytest.fixture
    def target(self, tmp_path: Path) -> SqliteTarget:
        return SqliteTarget(tmp_path)


class TestPostgres(StoreContract):
    @pytest.fixture
    def target(self, progress_url: str) -> PostgresTarget:
        return PostgresTarget(progress_url)


class TestMemoryThenSqlite(StoreContract):
    @pytest.fixture
    def target(self, tmp_path: Path) -> LevelsTarget:
        return LevelsTarget(MemoryProgress, SqliteTarget(tmp_path))


class TestMemoryThenPostgres(StoreContract):
    @pytest.fixture
    def target(self, progress_url: str) -> LevelsTarget:
        return LevelsTarget(MemoryProgress, PostgresTarget(progress_url))


class TestSqliteThenPostgres(StoreContract):
    @pytest.fixture
    def target(self, tmp_path: Path, progress_url: str) -> LevelsTarget:
        return LevelsTarget(partial(SqliteProgress, tmp_path / "front.db"), PostgresTarget(progress_url))
