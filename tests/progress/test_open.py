"""From the addresses in the settings to a store."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from headwater.model.errors import InputError
from headwater.model.secret import Secret
from headwater.progress.file import FileProgress
from headwater.progress.memory import MemoryProgress
from headwater.progress.multilevel import MultilevelProgress
from headwater.progress.open import open_store
from headwater.progress.postgres import PostgresProgress
from headwater.progress.sqlite import SqliteProgress

HERE = Path("/home/me/shop")


@pytest.mark.parametrize(
    ("text", "kind", "address"),
    [
        ("memory:", MemoryProgress, "memory:"),
        ("file:progress", FileProgress, "file:///home/me/shop/progress"),
        ("file:./a b/%20", FileProgress, "file:///home/me/shop/a b/%20"),
        ("file:/var/lib/hw", FileProgress, "file:///var/lib/hw"),
        ("file:///var/lib/hw", FileProgress, "file:///var/lib/hw"),
        ("sqlite:///.headwater/progress.db", SqliteProgress, "sqlite:////home/me/shop/.headwater/progress.db"),
        ("sqlite:////var/lib/hw.db", SqliteProgress, "sqlite:////var/lib/hw.db"),
        ("postgresql://me:s3cret@db:5432/ops", PostgresProgress, "postgresql://me:****@db:5432/ops"),
        ("postgres://db/ops?password=s3cret", PostgresProgress, "postgres://db/ops?password=****"),
    ],
)
def test_an_address_opens_its_store_and_is_shown_without_secrets(text: str, kind: type, address: str) -> None:
    store = open_store([Secret(text)], HERE)
    assert type(store) is kind
    assert store.address == address


def test_a_list_of_addresses_is_a_store_of_levels() -> None:
    store = open_store([Secret("memory:"), Secret("postgresql://me:s3cret@db/ops")], HERE)
    assert isinstance(store, MultilevelProgress)
    assert store.address == "memory: → postgresql://me:****@db/ops"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("postgre://db/ops", r"did you mean postgresql:\?"),
        ("sqllite:///p.db", r"did you mean sqlite:\?"),
        ("memry:", r"did you mean memory:\?"),
        ("mysql://me:s3cret@db/ops", "mysql… is not a store address"),
        ("redis://localhost", "redis://localhost is not a store address"),
        ("progress.db", "progress.db is not a store address"),
        ("", "is not a store address"),
        ("memory:x", "memory:x is incomplete"),
        ("sqlite:p.db", "sqlite:p.db is incomplete.*\n.*sqlite:///progress.db"),
        ("sqlite://", "is incomplete"),
        ("sqlite:///", "is incomplete"),
        ("sqlite:///:memory:", "is incomplete.*\n.*memory:"),
        ("file://host/x", "names a host"),
        ("file:", "names no folder"),
        ("file://", "names a host"),
        ("postgresql:ops", "is incomplete"),
        ("postgresql//me:s3cret@db/ops", "postgresql… is not a store address"),
        ("me:s3cret@db/ops", "me… is not a store address"),
    ],
)
def test_what_is_no_address_is_refused_with_what_to_write(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said) as raised:
        open_store([Secret(text)], HERE)
    assert "s3cret" not in str(raised.value)
    assert raised.value.hint


def test_memory_cannot_be_the_level_that_decides() -> None:
    with pytest.raises(InputError, match="put memory: first"):
        open_store([Secret("sqlite:///p.db"), Secret("memory:")], HERE)


def test_no_address_is_refused() -> None:
    with pytest.raises(InputError, match="no address"):
        open_store([], HERE)


def test_drivers_that_are_not_used_are_not_imported() -> None:
    code = (
        "import sys, headwater.progress.open; print(*{'psycopg', 'pyspark', 'pyarrow', 'pydantic'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
