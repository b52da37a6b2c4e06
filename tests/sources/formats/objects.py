"""Cases as files in a folder, planned and read by the source.

The bookmarks of a case are in memory: that objects are staged in a store is another suite's matter, and it would cost
most of the time here.
"""

from __future__ import annotations

import base64
import io
import json
import pickle
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import fastavro
import pyarrow as pa

from headwater.config.pipeline import SourceSettings
from headwater.model.bookmarks import BOOKMARK_COLUMNS, Ledger
from headwater.model.position.marks import Mark, mark_from_json
from headwater.model.rows import Reject
from headwater.sources.open import SourceContext, open_source
from tests.sources.formats.case import (
    AvroRecords,
    Case,
    Events,
    File,
    Outcome,
    Payload,
    Records,
    as_ddl,
    refusal,
    value_of,
)

_URL, _ROW = "object_url", "object_row"
_MAX_PREVIEW = 1000  # bytes of an object that its reject keeps
_LINES = ("json", "text", "debezium")


class Bookmarks:
    """The least of a ledger: objects as they are listed, a generation for each window."""

    def __init__(self) -> None:
        self._pages: list[pa.Table] = []

    def add(self, listed: pa.Table) -> None:
        """All objects that are not known yet, as the next generation."""
        known = {key for page in self._pages for key in page["key"].to_pylist()}
        about = {
            "generation": len(self._pages) + 1,
            "state": "read",
            "earlier": False,
            "tries": 0,
            "reason": "",
            "run": "r",
        }
        rows = [{**row, **about} for row in listed.to_pylist() if row["key"] not in known]
        self._pages.append(pa.Table.from_pylist(rows, pa.schema(list(BOOKMARK_COLUMNS.items()))))

    def newest(self) -> int:
        return len(self._pages)

    def waiting(self, after: int) -> int | None:
        return after + 1 if after < len(self._pages) else None

    def window(self, after: int, upto: int) -> list[pa.Table]:
        return self._pages[after:upto]


def outcomes(case: Case, folder: Path) -> Iterator[tuple[str, Outcome]]:
    """Of an object by itself, then of each of several."""
    for copies in ("1", "123"):
        location = folder / copies
        location.mkdir()
        yield from _read(case, location, copies)


def _read(case: Case, folder: Path, copies: str) -> Iterator[tuple[str, Outcome]]:
    bookmarks, mark = Bookmarks(), cast("Mark | None", None)
    around = SourceContext(ledger=lambda: cast("Ledger", bookmarks))
    source = open_source(settings_of(case, folder), folder, 2, around)
    try:
        for number, payload in enumerate(case.windows):
            file, content = file_of(case, payload)
            for copy in copies:
                (folder / f"{number}-{copy}-{file}").write_bytes(content)
            bookmarks.add(pa.Table.from_batches(source.listing()))  # type: ignore[attr-defined]
            window = source.plan(mark).window
            assert window is not None
            mark = mark_from_json(window.end.to_json())
        with source.read(window) as (rows,):
            by_url = _outcomes(case, rows, alone=True)
    except Exception as error:  # noqa: BLE001 - that, too, is an outcome
        yield "refused", refusal(error, f"{folder.as_uri()}/: ")
        return
    prefix = f"{folder.as_uri()}/{len(case.windows) - 1}-"
    by_name = {url.removeprefix(prefix)[:1]: outcome for url, outcome in by_url.items()}
    nothing = Outcome(as_ddl([rows.schema.field(name) for name in _content(rows)]))
    yield from ((f"copy {copy} of {len(copies)}", by_name.get(copy, nothing)) for copy in copies)


def neighbours(cases: Sequence[Case], folder: Path) -> dict[str, Outcome]:
    """Cases of one schema and one set of options as objects of one window, by name."""
    bookmarks, names = Bookmarks(), dict[str, str]()
    for number, case in enumerate(cases):
        file, content = file_of(case, case.windows[0])
        key = f"{number:04}-{file}"
        (folder / key).write_bytes(content)
        names[f"{folder.as_uri()}/{key}"] = case.name
    around = SourceContext(ledger=lambda: cast("Ledger", bookmarks))
    source = open_source(settings_of(cases[0], folder), folder, 2, around)
    bookmarks.add(pa.Table.from_batches(source.listing()))  # type: ignore[attr-defined]
    window = source.plan(None).window
    assert window is not None
    with source.read(window) as (rows,):
        by_url = _outcomes(cases[0], rows)
    nothing = Outcome(as_ddl([rows.schema.field(name) for name in _content(rows)]))
    return {name: by_url.get(url, nothing) for url, name in names.items()}


def settings_of(case: Case, folder: Path) -> SourceSettings:
    options: dict[str, Any] = {"url": folder.as_uri() + "/", "format": case.format, "metadata": ["url", "row"]}
    options |= dict(case.options) | ({"schema": case.schema} if case.schema is not None else {})
    return SourceSettings.model_validate({"objects": options})


def file_of(case: Case, payload: Payload) -> tuple[str, bytes]:
    """Its name and its content."""
    if isinstance(payload, File):
        return payload.name, payload.content
    if isinstance(payload, AvroRecords):
        out = io.BytesIO()
        fastavro.writer(out, payload.schema, [dict(one) for one in payload.records], sync_marker=b"the same always!")
        return "x", out.getvalue()
    if isinstance(payload, Events):
        return "x", b"".join(_line(one) + b"\n" for one in payload.events)
    assert isinstance(payload, Records)
    if case.format in _LINES:
        return "x", b"".join(value + b"\n" for value in payload.values if value is not None)
    (only,) = payload.values
    assert only is not None
    return "x", only


def _content(rows: Any) -> list[str]:
    return list(rows.changes.table_columns if rows.changes else ()) or [
        name for name in rows.schema.names if name not in (_URL, _ROW)
    ]


def _outcomes(case: Case, rows: Any, *, alone: bool = False) -> dict[str, Outcome]:
    """By the object's address; `alone`: all objects are the case's."""
    assert rows.splits is not None
    schema, content = rows.schema, _content(rows)
    rows_by_url: dict[str, dict[int, tuple[Any, ...]]] = {}
    rejects: list[Reject] = []
    for split in rows.splits:
        sent = pickle.loads(pickle.dumps(split))  # noqa: S301 - as to a worker
        for batch in sent.read(rejects.append):
            batch.validate(full=True)
            assert batch.schema == schema
            for location in range(batch.num_rows):
                row = tuple(value_of(batch[name][location]) for name in case.shows or content)
                mine = rows_by_url.setdefault(batch[_URL][location].as_py(), {})
                assert batch[_ROW][location].as_py() not in mine
                mine[batch[_ROW][location].as_py()] = row
    reasons: dict[str, dict[int | None, str]] = {}
    for reject in rejects:
        url, number = str(reject.location["object"]), reject.location.get("row")
        assert number is None or number not in rows_by_url.get(url, {})
        if alone:
            _check_payload(case, reject)
        reasons.setdefault(url, {})[number] = reject.reason  # type: ignore[index]
    for url in {*rows_by_url, *reasons} if alone else ():
        _check_numbers(case, {*rows_by_url.get(url, {}), *reasons.get(url, {})})
    columns = as_ddl([schema.field(name) for name in content])
    return {
        url: Outcome(columns, tuple(row for _, row in sorted(rows_by_url.get(url, {}).items())), reasons.get(url, {}))
        for url in {*rows_by_url, *reasons}
    }


def _check_payload(case: Case, reject: Reject) -> None:
    """A reject of a line holds its bytes, one of an object how it begins."""
    last, number = case.windows[-1], reject.location.get("row")
    assert bool(reject.part) == (number is None)
    if number is None:
        assert reject.payload == file_of(case, last)[1][:_MAX_PREVIEW]
    elif isinstance(last, Records) and case.format in _LINES and isinstance(number, int):
        value = last.values[number - 1]
        assert value is not None
        assert reject.payload == (value.removesuffix(b"\r") if case.format == "text" else value.strip(b" \t\r"))


def _check_numbers(case: Case, numbers: set[int | None]) -> None:
    """Every line is a row or a reject, under its own number."""
    last = case.windows[-1]
    if not isinstance(last, Records) or case.format not in ("json", "text") or None in numbers:
        return
    lines = {n for n, value in enumerate(last.values, start=1) if case.format == "text" or (value or b"").strip()}
    assert numbers == lines


def _line(event: Mapping[str, Any]) -> bytes:
    headers = [
        {"key": name, "value": base64.b64encode(record.encode()).decode()} for name, record in event.get("headers", ())
    ]
    record = {"key": event.get("key"), "value": event["value"], "headers": headers}
    return json.dumps(record, separators=(",", ":")).encode()
