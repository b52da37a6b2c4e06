"""What kinds of values the columns of CSV have: as little of a guess as possible.

A type is taken only where every text is the way that the type's value would be written: `007`, `+1`, `1.50` and `1e5`
are texts, since no number gives them back. Whole numbers beside numbers with a fraction are doubles, as in JSON. Moments
have a zone only as `Z`: another offset would be forgotten.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from headwater.config.objects_source import CsvSettings
from headwater.sources.json.found import EXACT_IN_DOUBLE, Kinds
from headwater.sources.objects.contents import Content
from headwater.sources.objects.failures import ObjectFailed
from headwater.sources.objects.formats.csv import column_names
from headwater.sources.objects.formats.csv_joined import join
from headwater.sources.objects.formats.csv_records import check_quotes
from headwater.sources.objects.formats.csv_texts import TextRows

_WHOLE = r"^(0|-?[1-9][0-9]{0,18})$"
_FRACTION = r"^-?(0|[1-9][0-9]*)\.([0-9]*[1-9]|0)$"
_NUMBER = r"^-?[0-9][0-9.e+-]*$"
_DAY = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TIME = r"[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?"
_MOMENTS = {
    "date": (f"{_DAY}$", pa.date32()),
    "timestamp": (f"{_DAY}{_TIME}Z$", pa.timestamp("us", "UTC")),
    "timestamp_ntz": (f"{_DAY}{_TIME}$", pa.timestamp("us")),
}
_KEPT_CHARACTERS = 16  # fifteen digits, which a double always keeps, and the point


def csv_kinds(contents: Sequence[Content], settings: CsvSettings) -> Kinds:
    """Of all columns, in the order in which they appear. What cannot be read brings none."""
    kinds: Kinds = {}
    together, alone = join(contents, settings)
    for content in [*(group.content for group in together), *(contents[number] for number in alone)]:
        try:
            for name, seen in _of_one(content, settings).items():
                kinds.setdefault(name, set()).update(seen)
        except ObjectFailed:
            continue  # it fails when it is read, and says so
    return kinds


def _of_one(content: Content, settings: CsvSettings) -> Kinds:
    names = column_names(content, settings, None)
    kinds: Kinds = {name: set() for name in names if names.count(name) == 1}
    if not kinds:
        return {}
    check_quotes(content, settings)
    for batch, _ in TextRows(content, names, list(kinds), settings).batches():
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            kinds[name] |= kinds_of(column)
    return kinds


def kinds_of(values: pa.Array) -> set[str]:
    """Of one column's texts; together they say its type, as those of JSON do."""
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
    whole = pc.match_substring_regex(texts, _WHOLE)
    rest = texts.filter(pc.invert(whole))
    certain = pc.and_(
        pc.match_substring_regex(rest, _FRACTION), pc.less_equal(pc.binary_length(rest), _KEPT_CHARACTERS)
    )
    if not all(_given_back(text) for text in rest.filter(pc.invert(certain)).to_pylist()):
        return set()
    kinds = {"double"} if len(rest) else set()
    if len(rest) < len(texts):
        try:
            found = pc.min_max(texts.filter(whole).cast(pa.int64())).as_py()
        except pa.ArrowInvalid:  # beyond 64 bits
            return set()
        kinds.add("bigint" if max(-found["min"], found["max"]) <= EXACT_IN_DOUBLE else "long bigint")
    return kinds


def _given_back(text: str) -> bool:
    try:
        return repr(float(text)) == text
    except ValueError:
        return False


def _moments(texts: pa.Array) -> set[str]:
    for name, (pattern, kind) in _MOMENTS.items():
        if _all(texts, pattern):
            try:
                texts.cast(kind)
            except pa.ArrowInvalid:  # the 30th of February
                return set()
            return {name}
    return set()


def _all(texts: pa.Array, pattern: str) -> bool:
    # The first one decides in most columns, and costs nothing.
    return all(pc.all(pc.match_substring_regex(some, pattern)).as_py() for some in (texts[:1], texts))
