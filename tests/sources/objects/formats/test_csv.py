"""CSV objects: by name or position, quoted or not, exactly or set aside (G8)."""

from __future__ import annotations

import csv
import io
from decimal import Decimal, InvalidOperation
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headwater.config.sources.objects import CsvSettings
from headwater.sources.ddl_schema import schema_of
from headwater.sources.objects.formats.csv import CsvObjects
from headwater.sources.objects.tuning import Tuning
from tests.sources.objects.object_folder import ObjectFolder


@pytest.fixture
def folder(tmp_path: Path) -> ObjectFolder:
    return ObjectFolder(tmp_path)


def rows(folder: ObjectFolder, content: bytes | str, schema: str = "a bigint, b string", **more: object) -> list[tuple]:
    folder.put("x.csv", content)
    return [tuple(row.values()) for row in folder.rows(format="csv", schema=schema, metadata=[], **more)]


def test_objects_with_their_columns_in_another_order_fit_together(folder: ObjectFolder):
    folder.put("1", "a,b\n1,x\n")
    folder.put("2", "b,c,a\ny,,2\n")
    folder.put("3", "a\n3\n")
    read = folder.rows(format="csv", schema="a bigint, b string", metadata=["row"])
    assert [tuple(row.values()) for row in read] == [(1, "x", 2), (2, "y", 2), (3, None, 2)]


def test_bad_rows_are_set_aside_with_their_number_and_bytes_and_the_rest_are_rows(folder: ObjectFolder):
    content = b'a,b\n1,x\nx,"q,\n1"\n3\n4,y,z\n\n5,\xff\n6,"\xc3\xa9"\n0x10,h\n'
    folder.put("x.csv", content)
    read = folder.rows(format="csv", schema="a bigint, b string", metadata=["row"])
    assert [tuple(row.values()) for row in read] == [(1, "x", 2), (6, "é", 7)]
    assert [
        (r.location["row"], r.reason, r.payload) for r in sorted(folder.rejects, key=lambda r: r.location["row"])
    ] == [
        (3, "a: expected a number, found the text 'x'", b'x,"q,\n1"'),
        (4, "2 columns, 1 values", b"3"),
        (5, "2 columns, 3 values", b"4,y,z"),
        (6, "b: not UTF-8 at byte 0", b"5,\xff"),
        (8, "a: expected a number, found the text '0x10'", b"0x10,h"),
    ]
    assert folder.rejects[0].more["columns"] == ["a", "b"]


def test_one_bad_value_among_many_is_found(folder: ObjectFolder):
    lines = [f"{number},t{number}" for number in range(10_000)]
    lines[7_777] = "oops,t"
    read = rows(folder, "\n".join(["a,b", *lines]))
    assert len(read) == 9_999
    assert list(folder.reasons()) == [("x.csv", 7_779)]


def test_large_objects_are_parsed_in_blocks(folder: ObjectFolder):
    folder.tuning = Tuning(csv_block_bytes=(200, 500), memory_bytes=100, large_bytes=100)
    lines = [f'{number},"x\n{number}"' for number in range(1000)]
    lines[500] = "1,2,3"
    lines[900] = "x,y"
    folder.put("x.csv", "\n".join(["a,b", *lines]))
    read = folder.rows(format="csv", schema="a bigint, b string", metadata=["row"])
    assert [tuple(row.values()) for row in read] == [(n, f"x\n{n}", n + 2) for n in range(1000) if n not in {500, 900}]
    assert sorted(folder.reasons()) == [("x.csv", 502), ("x.csv", 902)]
    assert rows(folder, "\n".join(["a,b", *lines]) + '\n1,"open') == []
    assert "closed" in folder.reasons()["x.csv", None]
    long = "a,b\n" + "1,x\n" * 500 + "2," + "y" * 300 + "\n3,z\n"
    assert rows(folder, long) == [(1, "x")] * 500 + [(2, "y" * 300), (3, "z")]
    assert rows(folder, "a,b\n" + "1,x\n" * 500 + "2," + "y" * 1000) == []
    assert "longer" in folder.reasons()["x.csv", None]


texts = st.text(st.sampled_from('ab,"\n é;0.\\'), max_size=6)
tables = st.integers(1, 3).flatmap(lambda width: st.lists(st.lists(texts, min_size=width, max_size=width), max_size=6))


@settings(max_examples=300)
@given(tables, st.sampled_from(["\n", "\r\n"]), st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]))
def test_what_pythons_csv_writes_is_read_as_it_was(table: list[list[str]], end: str, quoting: int):
    names = [f"c{n}" for n in range(len(table[0]) if table else 1)]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator=end, quoting=quoting)
    writer.writerows([names, *table])
    decoder = CsvObjects(schema_of(", ".join(f"{n} string" for n in names)), CsvSettings(), declared=True)
    decoded = decoder.decode([out.getvalue().encode()])
    assert decoded.failed == {}
    assert decoded.bad == []
    values = [tuple(row.values()) for part in decoded.parts for row in part.rows.to_pylist()]
    # Unquoted nothing is NULL, and nothing at all on a line is no record.
    expected = [tuple(v or (None if quoting == csv.QUOTE_MINIMAL else v) for v in row) for row in table]
    if len(names) == 1:
        expected = [("",) if row == (None,) else row for row in expected]  # Python quotes a lone empty value
    assert values == expected


def by_python(content: bytes) -> list[list[str]] | None:
    text = content.removeprefix(b"\xef\xbb\xbf").decode()
    try:
        return [row for row in csv.reader(io.StringIO(text, newline=""), strict=True) if row]
    except csv.Error:
        return None


@settings(max_examples=400)
@given(st.text(st.sampled_from('ab,"\n\r é'), max_size=30), st.integers(1, 12))
@example('"a"b', 8)
@example('a,b\n"', 8)
def test_any_text_is_read_as_pythons_strict_reader_reads_it(text: str, step: int):
    content = b"c0,c1\n" + text.encode()
    schema = pa.schema([("c0", pa.string()), ("c1", pa.string())])
    decoded = CsvObjects(schema, CsvSettings(null=[]), declared=True, tuning=Tuning(csv_scan_bytes=step)).decode(
        [content]
    )
    records = by_python(content)
    if records is None:
        assert 0 in decoded.failed
        return
    assert decoded.failed == {}
    numbered = list(enumerate(records, start=1))[1:]
    good = [(number, tuple(row)) for number, row in numbered if len(row) == 2]
    values = [
        (number, tuple(row.values()))
        for part in decoded.parts
        for number, row in zip(part.row_numbers().tolist(), part.rows.to_pylist(), strict=True)
    ]
    assert values == good
    assert sorted(bad.number for bad in decoded.bad) == [number for number, row in numbered if len(row) != 2]


def by_object(decoder: CsvObjects, contents: list[bytes]) -> list[tuple]:
    decoded = decoder.decode(contents)
    by_owner: list[tuple[list, list]] = [([], []) for _ in contents]
    for part in decoded.parts:
        owners = np.repeat(part.owners, part.counts).tolist()
        for owner, number, row in zip(owners, part.row_numbers().tolist(), part.rows.to_pylist(), strict=True):
            by_owner[owner][0].append((number, tuple(row.values())))
    for bad in decoded.bad:
        by_owner[bad.owner][1].append((bad.number, bad.reason, bad.payload))
    return [
        (sorted(rows), sorted(bad), decoded.failed[owner].reason if owner in decoded.failed else "")
        for owner, (rows, bad) in enumerate(by_owner)
    ]


cells = st.sampled_from(["1", "2", "x", "", "é", " ", '"q"', '"q\n"', '"'])
records = st.lists(cells, min_size=1, max_size=3).map(",".join)
headers = st.sampled_from(["a,b", "a,b", "a,b", "b,a", "a,b,c", "c", "", "\ufeffa,b"])
files = st.builds(
    lambda header, lines, end, last: (header + end + end.join(lines) + (end if last else "")).encode(),
    headers,
    st.lists(records | st.just(""), max_size=4),
    st.sampled_from(["\n", "\n", "\r\n", "\r"]),
    st.booleans(),
)


@pytest.mark.slow
@settings(max_examples=300)
@given(st.lists(files | st.sampled_from([b"", b"\xff,b\n1,2\n", b"a,b\n\xff,x\n"]), max_size=8), st.booleans())
def test_many_objects_at_once_give_what_each_gives_alone(contents: list[bytes], header: bool):  # noqa: FBT001
    decoder = CsvObjects(schema_of("a bigint, b string"), CsvSettings(header=header), declared=True)
    assert by_object(decoder, contents) == [by_object(decoder, [content])[0] for content in contents]


@given(st.text(st.sampled_from("0123456789.eE+-x n"), max_size=8))
@example("1E-42")
@example("1e2")
def test_decimals_are_what_pythons_decimal_reads(text: str):
    try:
        exact = Decimal(text) if text == text.strip() and "n" not in text.lower() else None
    except InvalidOperation:
        exact = None
    fits = exact is not None and (not exact or abs(exact.adjusted()) < 50)
    fits = fits and exact * 1000 == int(exact * 1000) and abs(exact) < 10**9
    out = io.StringIO()
    csv.writer(out, quoting=csv.QUOTE_ALL).writerows([["a"], [text]])
    decoded = CsvObjects(schema_of("a decimal(12,3)"), CsvSettings(), declared=True).decode([out.getvalue().encode()])
    values = [value for part in decoded.parts for value in part.rows.column(0).to_pylist()]
    assert values == ([exact] if fits else [])
