"""CSV: a row per record; columns by the names in the first one, whatever their order, or by position.

A row's number is that of its record; the header is the first, and blank lines are none. Columns that the schema does
not name are dropped, columns that an object lacks are NULL.

Schema inference does not guess. A type is inferred only if every text is the canonical form of its value: `007`,
`+1`, `1.50` and `1e5` are texts, since no number is written so. Whole numbers beside numbers with a fraction are
doubles, as in JSON. Timestamps have a zone only as `Z`: another offset would be lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.config.sources.objects import CsvSettings
from headwater.model.bisect import bisect
from headwater.sources.json.columns import SeenTypes, integer_type, merge_seen_types
from headwater.sources.json.strict import Texts
from headwater.sources.objects.content import BadRow, Content, ObjectFailed
from headwater.sources.objects.formats.base import Decoded, DecodedRows, concat_decoded, decode_each
from headwater.sources.objects.formats.csv_records import JoinedCsv, TextRows, check_quotes, first_record, join, raw
from headwater.sources.objects.tuning import DEFAULT, Tuning
from headwater.sources.values import Misfit, utf8


class CsvObjects:
    """For one schema. `declared`: without a header the columns of the settings' schema apply by position."""

    def __init__(self, schema: pa.Schema, settings: CsvSettings, *, declared: bool, tuning: Tuning = DEFAULT) -> None:
        self._schema, self._settings, self._tuning = schema, settings, tuning
        self._declared = list(schema.names) if declared else None
        self._columns = {field.name: TextColumn(field) for field in schema}

    def decode(self, contents: Sequence[Content]) -> Decoded:
        together, alone = join(contents, self._settings)
        decoded = Decoded()
        for group in together:
            try:
                _assign_owners(group, concat_decoded(self.pieces(group.content)), decoded)
            except ObjectFailed:  # each has to say so for itself
                alone += group.owners.tolist()
        separate = decode_each(self.pieces, [contents[number] for number in alone])
        return concat_decoded([decoded, separate.with_owners(alone)])

    def pieces(self, content: Content) -> Iterator[Decoded]:
        names = column_names(content, self._settings, self._declared)
        if not names:
            return
        selected = self._selected(names)
        check_quotes(content, self._settings, self._tuning.csv_scan_bytes)
        rows = TextRows(content, names, selected, self._settings, self._tuning.csv_block_bytes)
        for batch, numbers in rows.batches():
            yield self._typed(content, names, batch, numbers)
        reasons = {number: f"{len(names)} columns, {count} values" for number, count in rows.uneven.items()}
        yield Decoded(bad=self._bad(content, names, reasons))

    def _selected(self, names: Sequence[str]) -> list[str]:
        selected = [name for name in self._schema.names if name in names]
        if not selected and any(self._schema.names):
            raise ObjectFailed(
                f"it has none of the columns {', '.join(self._schema.names)}; its columns: {', '.join(names)}"
            )
        if duplicates := [name for name in selected if names.count(name) > 1]:
            raise ObjectFailed(f"column {duplicates[0]} is in its header twice")
        missing = [field.name for field in self._schema if not field.nullable and field.name not in names]
        if missing:
            raise ObjectFailed(f"it lacks column {missing[0]}, which the schema declares NOT NULL")
        return selected

    def _typed(self, content: Content, names: Sequence[str], batch: pa.RecordBatch, numbers: np.ndarray) -> Decoded:
        columns, reasons = [], dict[int, str]()
        for field in self._schema:
            index = batch.schema.get_field_index(field.name)
            if index < 0:
                columns.append(pa.nulls(batch.num_rows, field.type))
                continue
            column, misfits = self._columns[field.name].convert(batch.column(index))
            columns.append(column)
            reasons = {**misfits, **reasons}
        rows = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        if reasons:
            good = np.ones(len(numbers), bool)
            good[list(reasons)] = False
            rows = rows.filter(pa.array(good))
            bad = self._bad(content, names, {int(numbers[index]): why for index, why in reasons.items()})
            return Decoded([DecodedRows.of_one(rows, numbers[good])], bad)
        return Decoded([DecodedRows.of_one(rows, numbers)])

    def _bad(self, content: Content, names: Sequence[str], reasons: Mapping[int, str]) -> list[BadRow]:
        payloads = raw(content, self._settings, reasons) if reasons else {}
        more = {"columns": list(names)}  # a replay has the record alone
        return [BadRow(0, number, reasons[number], payloads[number], more) for number in sorted(reasons)]


def _assign_owners(group: JoinedCsv, joined: Decoded, decoded: Decoded) -> None:
    """Add the rows of a group to what was made, as rows of its objects."""
    for part in joined.parts:
        decoded.parts.append(DecodedRows.of_rows(part.rows, *group.locate(part.row_numbers())))
    for row in joined.bad:
        (owner,), (number,) = group.locate(np.array([row.number]))
        decoded.bad.append(replace(row, owner=int(owner), number=int(number)))


def column_names(content: Content, settings: CsvSettings, declared: Sequence[str] | None) -> list[str]:
    """Of the object's own columns; none: it has no record. Raises ObjectFailed."""
    first = first_record(content, settings)
    if settings.header:
        try:
            return [name.decode() for name in first]
        except UnicodeDecodeError as error:
            raise ObjectFailed(f"the name of a column is not UTF-8 at byte {error.start:,}") from None
    if not first:
        return []
    if declared is None:
        return [f"column{number}" for number in range(1, len(first) + 1)]
    if len(first) != len(declared):
        raise ObjectFailed(f"{len(first)} columns; the schema has {len(declared)}")
    return list(declared)


_FEW = 16

Misfits = dict[int, str]  # index in the column → reason


class TextColumn:
    """Converts for one column."""

    def __init__(self, field: pa.Field) -> None:
        self._field, self._texts = field, Texts(field)

    def convert(self, values: pa.Array) -> tuple[pa.Array, Misfits]:
        """Binary values as the column's type; misfits are NULL there, with their reasons."""
        misfits: Misfits = {}
        parts = [
            self._convert_each(part.items, part.begin, misfits) if part.result is None else part.result
            for part in bisect(values, self._cast_all, smallest=_FEW)
        ]
        column = parts[0] if len(parts) == 1 else pa.concat_arrays(parts)
        return column, {index: f"{self._field.name}: {why}" for index, why in misfits.items()}

    def _cast_all(self, values: pa.Array) -> pa.Array | None:
        data_type = self._field.type
        if (
            (values.null_count and not self._field.nullable)
            or pa.types.is_nested(data_type)
            or pa.types.is_binary(data_type)
        ):
            return None
        try:
            texts = values.cast(pa.string())
            return _cast_texts(texts, data_type)
        except pa.ArrowInvalid:
            return None

    def _convert_each(self, values: pa.Array, begin: int, misfits: Misfits) -> pa.Array:
        items = []
        for index, value in enumerate(values.to_pylist(), start=begin):
            try:
                items.append(self._texts.value(None if value is None else utf8(value)))
            except Misfit as misfit:
                misfits[index] = str(misfit)
                items.append(None)
        return self._texts.array(items)


def _cast_texts(texts: pa.Array, data_type: pa.DataType) -> pa.Array | None:
    """All of them, or None. Raises ArrowInvalid."""
    t = pa.types
    if t.is_string(data_type):
        return texts
    if t.is_boolean(data_type):
        lowered = pc.ascii_lower(texts)
        true = pc.equal(lowered, "true")
        known = pc.or_(true, pc.equal(lowered, "false"))
        return true if pc.all(known, min_count=0).as_py() else None
    if t.is_integer(data_type) and pc.any(pc.match_substring(texts, "x", ignore_case=True)).as_py():
        return None  # Arrow reads 0x10 as 16
    if t.is_decimal(data_type) and pc.any(pc.match_substring(texts, "e", ignore_case=True)).as_py():
        return None  # Arrow reads 1e-42 as 0
    if t.is_floating(data_type):
        # 1e400 would become an infinity; those that are meant are spelled out.
        numbers = texts.cast(pa.float64()).cast(data_type, safe=False)
        return None if pc.any(pc.invert(pc.is_finite(numbers))).as_py() else numbers
    return texts.cast(data_type)


_INTEGER = r"^(0|-?[1-9][0-9]{0,18})$"
_FRACTION = r"^-?(0|[1-9][0-9]*)\.([0-9]*[1-9]|0)$"
_NUMBER = r"^-?[0-9][0-9.e+-]*$"
_DAY = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TIME = r"[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?"
_MOMENTS = {
    "date": (f"{_DAY}$", pa.date32()),
    "timestamp": (f"{_DAY}{_TIME}Z$", pa.timestamp("us", "UTC")),
    "timestamp_ntz": (f"{_DAY}{_TIME}$", pa.timestamp("us")),
}
_EXACT_CHARACTERS = 16  # fifteen digits, exact in a double, and the point


def infer_csv(contents: Sequence[Content], settings: CsvSettings) -> SeenTypes:
    """The types seen in all columns, in the order of appearance. Unreadable objects add none."""
    seen_types: SeenTypes = {}
    together, alone = join(contents, settings)
    for content in [*(group.content for group in together), *(contents[number] for number in alone)]:
        try:
            merge_seen_types(seen_types, _of_one(content, settings))
        except ObjectFailed:
            continue  # it fails with a reason when it is read
    return seen_types


def _of_one(content: Content, settings: CsvSettings) -> SeenTypes:
    names = column_names(content, settings, None)
    seen_types: SeenTypes = {name: set() for name in names if names.count(name) == 1}
    if not seen_types:
        return {}
    check_quotes(content, settings)
    for batch, _ in TextRows(content, names, list(seen_types), settings).batches():
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            seen_types[name] |= types_of(column)
    return seen_types


def types_of(values: pa.Array) -> set[str]:
    """The types seen in one column's texts; the column's type follows as in JSON."""
    present = values.drop_null()
    if not len(present):
        return set()
    try:
        texts = present.cast(pa.string())
    except pa.ArrowInvalid:  # not UTF-8: those rows are rejects
        return {"string"}
    if pc.all(pc.is_in(texts, value_set=pa.array(["true", "false"]))).as_py():
        return {"boolean"}
    return _numbers(texts) or _moments(texts) or {"string"}


def _numbers(texts: pa.Array) -> set[str]:
    if not _all(texts, _NUMBER):
        return set()
    is_integer = pc.match_substring_regex(texts, _INTEGER)
    rest = texts.filter(pc.invert(is_integer))
    certain = pc.and_(
        pc.match_substring_regex(rest, _FRACTION), pc.less_equal(pc.binary_length(rest), _EXACT_CHARACTERS)
    )
    if not all(_is_canonical(text) for text in rest.filter(pc.invert(certain)).to_pylist()):
        return set()
    seen_types = {"double"} if len(rest) else set()
    if len(rest) < len(texts):
        try:
            edges = pc.min_max(texts.filter(is_integer).cast(pa.int64())).as_py()
        except pa.ArrowInvalid:  # beyond 64 bits
            return set()
        seen_types.add(integer_type(edges["min"], edges["max"]))
    return seen_types


def _is_canonical(text: str) -> bool:
    try:
        return repr(float(text)) == text
    except ValueError:
        return False


def _moments(texts: pa.Array) -> set[str]:
    for name, (pattern, data_type) in _MOMENTS.items():
        if _all(texts, pattern):
            try:
                texts.cast(data_type)
            except pa.ArrowInvalid:  # the 30th of February
                return set()
            return {name}
    return set()


def _all(texts: pa.Array, pattern: str) -> bool:
    # The first text decides for most columns, at no cost.
    return all(pc.all(pc.match_substring_regex(some, pattern)).as_py() for some in (texts[:1], texts))
