"""Where a change stands in its database's log, as `model.rows.position` says, for many events at once.

The logs of two servers cannot be ordered: after a failover of MySQL to another server the log has other files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import reduce

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.model.rows import position

SOURCE = pa.struct(
    [
        ("connector", pa.string()),
        ("sequence", pa.string()),
        ("lsn", pa.int64()),
        ("txId", pa.int64()),
        ("file", pa.string()),
        ("pos", pa.int64()),
        ("row", pa.int64()),
        ("gtid", pa.string()),
        ("ts_us", pa.int64()),
        ("ts_ms", pa.int64()),
    ]
)
"""What is read of an event's `source`."""

TRANSACTION = pa.struct([("total_order", pa.int64())])
"""And of its `transaction`, which connectors tell with `provide.transaction.metadata`."""

_SEQUENCE = r'^\[\s?(?:null|"(?P<commit>\d{1,19})"),\s?(?:null|"(?P<lsn>\d{1,19})")\s?\]$'
_FILE = re.compile(r"\.(\d{1,7})$")
_UNIT = np.uint64(position(1, 0))
_HALF, _LOW = np.uint64(32), np.uint64(0xFFFF_FFFF)
_MOST = np.int64(1 << 62)  # of a position in a log: it is doubled
_OFFSET_BITS = 40

Numbers = npt.NDArray[np.int64]
Source = Mapping[str, pa.Array]


def log_positions(connector: str, source: Source) -> tuple[Numbers, Numbers]:
    """Of events of one connector: the position in the log, and the number of the change there; negative: unknown."""
    return _CONNECTORS[connector](source)


def positions(major: Numbers, minor: Numbers, reads: npt.NDArray[np.bool_]) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
    """Of such positions; `reads`: which are a snapshot's. And which of them make no sense."""
    bad = (major < 0) | (minor < 0) | (minor >= _MOST)
    major, minor = np.where(bad, 0, major), np.where(bad, 0, minor) * 2 + ~reads
    return packed(major.astype(np.uint64), minor.astype(np.uint64)), bad


def known_connectors() -> tuple[str, ...]:
    return tuple(_CONNECTORS)


def _postgres(source: Source) -> tuple[Numbers, Numbers]:
    lsns = pc.extract_regex(source["sequence"], _SEQUENCE)
    commit, lsn = (_integers(pc.struct_field(lsns, name)) for name in ("commit", "lsn"))
    older = source["sequence"].is_null().to_numpy(zero_copy_only=False)  # connectors that say no sequence
    alone = np.where(older, _filled(source["lsn"], -1), lsn)
    return np.where(commit >= 0, commit, alone), _filled(source["lsn"], 0)


def _mysql(source: Source) -> tuple[Numbers, Numbers]:
    files = source["file"].dictionary_encode()
    numbers = [
        int(number[1]) if text and (number := _FILE.search(text)) else -1 for text in files.dictionary.to_pylist()
    ]
    file = np.array([*numbers, -1], np.int64)[_filled(files.indices, len(numbers))]
    offset = _filled(source["pos"], -1)
    bad = (file < 0) | (offset < 0) | (offset >= 1 << _OFFSET_BITS)
    # All changes of a compressed transaction have one position, and rows are counted anew for each of its statements.
    number = pc.coalesce(source["total_order"], source["row"])
    return np.where(bad, -1, file << _OFFSET_BITS | offset), _filled(number, 0)


_CONNECTORS: Mapping[str, Callable[[Source], tuple[Numbers, Numbers]]] = {
    "postgresql": _postgres,
    "mysql": _mysql,
    "mariadb": _mysql,
}


def _integers(digits: pa.Array) -> Numbers:
    """Texts of digits as numbers; -1 for NULL, and for a number beyond 63 bits."""
    present = pc.if_else(pc.equal(digits, ""), None, digits)
    try:
        return _filled(present.cast(pa.int64()), -1)
    except pa.ArrowInvalid:
        fits = [int(text) if text and int(text) < 1 << 63 else -1 for text in digits.to_pylist()]
        return np.array(fits, np.int64)


def _filled(column: pa.Array, instead: int) -> Numbers:
    return np.asarray(column.fill_null(instead).to_numpy(zero_copy_only=False), np.int64)


def packed(major: npt.NDArray[np.uint64], minor: npt.NDArray[np.uint64]) -> pa.Array:
    """As `position`, in 128 bits: schoolbook multiplication by halves of words."""
    low_unit, high_unit = _UNIT & _LOW, _UNIT >> _HALF
    low, high = major & _LOW, major >> _HALF
    first, second, third, fourth = low * low_unit, low * high_unit, high * low_unit, high * high_unit
    middle = reduce(np.add, (first >> _HALF, second & _LOW, third & _LOW))
    bottom = (first & _LOW) | (middle << _HALF)
    top = fourth + (second >> _HALF) + (third >> _HALF) + (middle >> _HALF)
    words = np.empty((len(major), 2), np.uint64)
    words[:, 0] = bottom + minor
    words[:, 1] = top + (words[:, 0] < minor)
    return pa.Array.from_buffers(pa.decimal128(38, 0), len(major), [None, pa.py_buffer(words)])
