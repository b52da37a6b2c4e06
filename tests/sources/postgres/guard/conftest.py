"""Servers of these tests' own: what is done to them would disturb others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.services.stack.postgres import NO_FSYNC, Postgres
from headwater.services.stack.service import Service, running
from tests.sources.postgres.guard.guarded_slot import Guarded

OPTIONS = {**NO_FSYNC, "max_slot_wal_keep_size": "64MB"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A server that keeps little WAL."""
    folder: Path = tmp_path_factory.mktemp("guarded")
    with running(Postgres(OPTIONS), folder) as service:
        yield service
    service.remove()


@pytest.fixture
def guarded(server: Service) -> Iterator[Guarded]:
    guarded = Guarded.build(server.address["url"])
    yield guarded
    guarded.remove()
