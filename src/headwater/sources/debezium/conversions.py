"""Values as Debezium writes them in JSON, as the values of columns: whole arrays at once.

Every function raises ArrowInvalid or ValueError where a value cannot be kept exactly (G8); whoever calls it finds out
which one by trying smaller parts.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

Convert = Callable[[pa.Array], pa.Array]

# Years 1 to 9999: what Spark, Iceberg's readers and Python have in common.
_DAYS = (-719_162, 2_932_896)
_MICROS = (-62_135_596_800_000_000, 253_402_300_799_999_999)
_DAY = 86_400


def days(array: pa.Array) -> pa.Array:
    return _between(array, _DAYS).cast(pa.int32()).view(pa.date32())


def iso_days(array: pa.Array) -> pa.Array:
    return days(_without_z(array).cast(pa.date32()).view(pa.int32()))


def moments(per_second: int) -> Convert:
    """Numbers since 1970, without a zone."""

    def convert(array: pa.Array) -> pa.Array:
        return _between(_micros(array, per_second), _MICROS).view(pa.timestamp("us"))

    return convert


def iso_moments(array: pa.Array) -> pa.Array:
    return _moments(_without_z(array), pa.timestamp("us"))


def zoned_moments(array: pa.Array) -> pa.Array:
    return _moments(array, pa.timestamp("us", "UTC"))


def _moments(array: pa.Array, kind: pa.DataType) -> pa.Array:
    try:
        made = array.cast(kind)
    except pa.ArrowInvalid:
        # Nanoseconds that are none: more than six digits, the rest of them zeros.
        made = pc.replace_substring_regex(array, r"(\.\d{6})0+", r"\1").cast(kind)
    return _between(made.view(pa.int64()), _MICROS).view(kind)


def times(per_second: int) -> Convert:
    """Numbers since midnight as `08:30:00.000000`. MySQL's may be negative, and longer than a day."""
    digits = len(str(per_second)) - 1
    kind = pa.time32("ms") if per_second == 1_000 else pa.time64("us" if per_second == 1_000_000 else "ns")  # noqa: PLR2004

    def convert(array: pa.Array) -> pa.Array:
        found = pc.min_max(array).as_py()
        if found["min"] is None or (found["min"] >= 0 and found["max"] < _DAY * per_second):
            return array.cast(pa.int32() if kind.bit_width == 32 else pa.int64()).view(kind).cast(pa.string())  # noqa: PLR2004
        return pa.array([None if n is None else _clock(n, per_second, digits) for n in array.to_pylist()], pa.string())

    return convert


def _clock(number: int, per_second: int, digits: int) -> str:
    whole, fraction = divmod(abs(number), per_second)
    minutes, seconds = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{'-' if number < 0 else ''}{hours:02}:{minutes:02}:{seconds:02}.{fraction:0{digits}}"


def iso_times(array: pa.Array) -> pa.Array:
    return _without_z(array)


def from_base64(array: pa.Array) -> pa.Array:
    decode = binascii.a2b_base64
    made = [None if text is None else decode(text, strict_mode=True) for text in array.to_pylist()]
    return pa.array(made, pa.binary())


def from_base64url(array: pa.Array) -> pa.Array:
    return from_base64(pc.replace_substring(pc.replace_substring(array, "-", "+"), "_", "/"))


def from_hex(array: pa.Array) -> pa.Array:
    return pa.array([None if text is None else binascii.a2b_hex(text) for text in array.to_pylist()], pa.binary())


def floats(array: pa.Array) -> pa.Array:
    """The nearest single; one beyond them all cannot be kept."""
    made = array.cast(pa.float32(), safe=False)
    if pc.any(pc.and_(pc.is_inf(made), pc.invert(pc.is_inf(array)))).as_py():
        raise pa.ArrowInvalid("beyond float")
    return made


def _micros(array: pa.Array, per_second: int) -> pa.Array:
    wide = array.cast(pa.int64())
    if per_second < 1_000_000:  # noqa: PLR2004
        return pc.multiply_checked(wide, 1_000_000 // per_second)
    if per_second == 1_000_000:  # noqa: PLR2004
        return wide
    return wide.view(pa.timestamp("ns")).cast(pa.timestamp("us")).view(pa.int64())  # raises at a part of a microsecond


def _between(array: pa.Array, edges: tuple[int, int]) -> pa.Array:
    found = pc.min_max(array).as_py()
    if found["min"] is not None and (found["min"] < edges[0] or found["max"] > edges[1]):
        raise pa.ArrowInvalid("beyond the years 1 to 9999")
    return array


def _without_z(array: pa.Array) -> pa.Array:
    if pc.ends_with(array, "Z").false_count:
        raise pa.ArrowInvalid("no ISO text in UTC")
    return pc.utf8_slice_codeunits(array, 0, -1)
