"""The same log read the plain way: one message after the other, one value after the other, by `struct`. The oracle."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping
from typing import Any

from headwater.model.rows import position

_UNTOLD = object()
_NUMBERS = (20, 21, 23)


class PlainReader:
    """Changes of some tables, as plain dictionaries in the order of the log."""

    def __init__(self, keys: Mapping[int, tuple[str, ...]]) -> None:
        self._keys = keys  # by the table's oid
        self._tables: dict[int, list[tuple[str, int]]] = {}
        self.changes: list[tuple[int, dict[str, Any]]] = []
        self._lsn = self._time = self._xid = self._number = 0

    def read(self, messages: Iterable[bytes]) -> list[tuple[int, dict[str, Any]]]:
        for message in messages:
            kind = chr(message[0])
            if kind == "B":
                self._lsn, time, self._xid = struct.unpack_from(">QqI", message, 1)
                self._time, self._number = time + 946_684_800_000_000, 0
            elif kind == "R":
                self._relation(message)
            elif kind in "IUDT":
                self._number += 1
                self._row(kind, message)
        return self.changes

    def _relation(self, message: bytes) -> None:
        (oid,) = struct.unpack_from(">I", message, 1)
        at = message.index(0, message.index(0, 5) + 1) + 2
        (count,) = struct.unpack_from(">H", message, at)
        at, columns = at + 2, []
        for _ in range(count):
            end = message.index(0, at + 1)
            columns.append((message[at + 1 : end].decode(), struct.unpack_from(">I", message, end + 1)[0]))
            at = end + 9
        self._tables[oid] = columns

    def _row(self, kind: str, message: bytes) -> None:  # noqa: C901 - all rules in one place
        if kind == "T":
            (count,) = struct.unpack_from(">I", message, 1)
            for oid in struct.unpack_from(f">{count}I", message, 6):
                if oid in self._keys:
                    self._add(oid, "t", {})
            return
        (oid,) = struct.unpack_from(">I", message, 1)
        if oid not in self._keys:
            return
        images, at = {}, 5
        while at < len(message):
            whose = chr(message[at])
            images[whose], at = self._tuple(oid, message, at + 1)
        key, old, new = self._keys[oid], images.get("K") or images.get("O"), images.get("N")
        if kind == "D":
            self._add(oid, "d", {name: old[name] for name in key or old})
            return
        if kind == "I":
            self._add(oid, "c", new)
            return
        if old is not None:
            for name, value in new.items():
                if value is _UNTOLD and old[name] is not None:
                    new[name] = old[name]
        if old is not None and key and any(old[name] != new[name] for name in key):
            self._add(oid, "d", {name: old[name] for name in key}, row=1)
            former = json.dumps([old[name] for name in key], ensure_ascii=False, separators=(",", ":"))
            self._add(oid, "c", new, former=former)
        else:
            self._add(oid, "u", new)

    def _tuple(self, oid: int, message: bytes, at: int) -> tuple[dict[str, Any], int]:
        (count,) = struct.unpack_from(">H", message, at)
        at, row = at + 2, {}
        assert count == len(self._tables[oid])
        for name, kind in self._tables[oid]:
            letter = chr(message[at])
            at += 1
            if letter == "t":
                (size,) = struct.unpack_from(">I", message, at)
                text = message[at + 4 : at + 4 + size].decode()
                row[name] = int(text) if kind in _NUMBERS else text
                at += 4 + size
            else:
                row[name] = None if letter == "n" else _UNTOLD
        return row, at

    def _add(self, oid: int, op: str, columns: Mapping[str, Any], row: int = 0, former: str | None = None) -> None:
        names = [name for name, _ in self._tables[oid]]
        values = {name: None if columns.get(name) is _UNTOLD else columns.get(name) for name in names}
        change = {
            "_op": op,
            "_position": position(self._lsn, 4 * self._number + 3),
            "_source_time": self._time,
            "_transaction": str(self._xid),
            "_missing": [name for name in names if columns.get(name) is _UNTOLD] or None,
            "_old_key": former,
            "_row": row,
        }
        self.changes.append((oid, {**values, **change}))


def applied(changes: Iterable[Mapping[str, Any]], key: tuple[str, ...]) -> dict[tuple, dict[str, Any]]:
    """The table after its changes, as a sink would make it: what is not told is what it was."""
    rows: dict[tuple, dict[str, Any]] = {}
    deleted: dict[tuple, dict[str, Any]] = {}
    for change in changes:
        row = {name: value for name, value in change.items() if name not in _BESIDE}
        at = tuple(change[name] for name in key)
        if change["_op"] == "t":
            rows.clear()
        elif change["_op"] == "d":
            deleted[at] = rows.pop(at)
        else:
            before = deleted[tuple(json.loads(change["_old_key"]))] if change["_old_key"] else rows.get(at, {})
            rows[at] = row | {name: before[name] for name in change["_missing"] or ()}
    return rows


_BESIDE = {"_op", "_position", "_source_time", "_transaction", "_missing", "_old_key", "_row"}
