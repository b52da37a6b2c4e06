"""One database for the progress tests, and a schema of its own for each test: much quicker than a database each."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import psycopg
import pytest


@pytest.fixture(scope="session")
def progress_database(postgres_url: str) -> Iterator[str]:
    name = f"progress_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(f'CREATE DATABASE "{name}"')
    yield postgres_url.rsplit("/", 1)[0] + f"/{name}"
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest.fixture
def progress_url(progress_database: str) -> str:
    """The address of an empty schema: the first of the search path is where the tables go."""
    schema = f"s_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(progress_database, autocommit=True) as admin:
        admin.execute(f'CREATE SCHEMA "{schema}"')
    return f"{progress_database}?options=-csearch_path%3D{schema}"
