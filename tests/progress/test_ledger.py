"""The contract of ledgers, on every store that keeps one; others say so."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.model.bookmarks import HasLedger
from headwater.model.protocols.store import Store
from headwater.model.secret import Secret
from headwater.progress.open import open_store
from headwater.testing.ledger_contract import LedgerContract


class TestSqlite(LedgerContract):
    @pytest.fixture
    def target(self, tmp_path: Path) -> None:
        self.path = tmp_path

    def store(self) -> Store:
        return open_store([Secret("sqlite:///progress.db")], self.path)


class TestMultilevel(LedgerContract):
    @pytest.fixture
    def target(self, tmp_path: Path) -> None:
        self.path = tmp_path

    def store(self) -> Store:
        return open_store([Secret("memory:"), Secret("sqlite:///progress.db")], self.path)


class TestPostgres(LedgerContract):
    @pytest.fixture
    def target(self, progress_url: str) -> None:
        self.url = progress_url

    def store(self) -> Store:
        return open_store([Secret(self.url)], Path())


@pytest.mark.parametrize("address", ["memory:", "file:state"])
def test_a_store_without_bookmarks_is_known_as_such(address: str, tmp_path: Path) -> None:
    assert not isinstance(open_store([Secret(address)], tmp_path), HasLedger)
