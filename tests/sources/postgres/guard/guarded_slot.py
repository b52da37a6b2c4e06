"""A database with a slot, a mark taken from it, and what the guardian says of both."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

import psycopg

from headwater.config.settings import SecretText
from headwater.config.sources.postgres import PostgresSourceSettings, SlotGuardSettings
from headwater.model.position.marks import LsnMark
from headwater.model.secret import Secret
from headwater.pg.connection import PostgresSession
from headwater.sources.postgres.guard.checks import Verdict, judge
from headwater.sources.postgres.guard.slot import create_slot, drop_slot
from headwater.sources.postgres.guard.state import GuardState, read_state, with_timelines

PEEK = """SELECT lsn::text, data FROM pg_logical_slot_peek_binary_changes(%s, NULL, NULL,
    'proto_version', '1', 'publication_names', 'pub', 'messages', 'true')"""


@dataclass
class Guarded:
    """One pipeline's view of the server."""

    url: str
    slot: str
    session: PostgresSession = field(init=False)

    def __post_init__(self) -> None:
        self.session = PostgresSession(Secret(self.url))

    @classmethod
    def build(cls, server: str) -> Guarded:
        name = f"g_{uuid.uuid4().hex[:10]}"
        with psycopg.connect(server, autocommit=True) as admin:
            admin.execute(f'CREATE DATABASE "{name}"')
        guarded = cls(f"{server.rpartition('/')[0]}/{name}", name)
        guarded.run("CREATE TABLE orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, note text)")
        guarded.run("CREATE PUBLICATION pub FOR TABLE orders")
        return guarded

    def remove(self) -> None:
        drop_slot(self.session, self.slot)
        self.session.close()
        name = self.url.rpartition("/")[2]
        with psycopg.connect(f"{self.url.rpartition('/')[0]}/postgres", autocommit=True) as admin:
            admin.execute(f'DROP DATABASE "{name}" WITH (FORCE)')

    def run(self, statement: str) -> list[tuple]:
        cursor = self.session.connection.execute(statement)
        return cursor.fetchall() if cursor.description else []

    def insert(self) -> None:
        self.run("INSERT INTO orders (note) VALUES ('x')")

    def grow(self, segments: int) -> None:
        """The log, by 16 MB each."""
        for _ in range(segments):
            self.run("SELECT pg_logical_emit_message(false, 'other', 'x')")
            self.run("SELECT pg_switch_wal()")

    def create(self) -> LsnMark:
        """The slot, and the mark of a pipeline that begins there."""
        lsn = create_slot(self.session, self.slot)
        server = read_state(self.session, self.slot).server
        return LsnMark(lsn, server.cluster, server.timeline, self.slot)

    def peeked_to(self) -> int:
        """The end of the last commit that the slot shows; 0: it shows none."""
        messages = self.session.connection.execute(PEEK, [self.slot]).fetchall()
        return max((int.from_bytes(bytes(data)[10:18]) for _, data in messages if bytes(data[:1]) == b"C"), default=0)

    def read_state(self, mark: LsnMark | None) -> GuardState:
        return with_timelines(read_state(self.session, self.slot), Secret(self.url), mark)

    def judge(self, mark: LsnMark | None, **guard: object) -> Verdict:
        settings = PostgresSourceSettings(
            url=SecretText(self.url), tables=["orders"], slot=self.slot, guard=SlotGuardSettings.model_validate(guard)
        )
        return judge(self.read_state(mark), mark, settings)
