"""Numbers of 19 to 38 digits out of numeric's groups of four, many at once: numpy has no integers that wide."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

_Numbers = np.ndarray[Any, Any]

_GROUP = 4  # decimal digits
_HALF = 19  # digits, the most that 64 bits without a sign hold; two halves are the most that a decimal has
_POWERS = np.array([10**digits for digits in range(_HALF + 1)], np.uint64)
_LOWER = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)


def wide_limbs(
    groups: Sequence[_Numbers], power: _Numbers, negative: _Numbers, target: pa.DataType
) -> tuple[_Numbers, _Numbers]:
    """The numbers as Arrow keeps them, the low 64 bits first; and those with digits that the type has no place for.

    `power` is the first group's power of 10,000.
    """
    low, high = np.zeros(len(power), np.uint64), np.zeros(len(power), np.uint64)
    wrong = np.zeros(len(power), bool)
    for number, group in enumerate(groups):
        place = np.where(group == 0, 0, _GROUP * (power - number) + target.scale)  # of the group's last digit
        cut = _POWERS[np.clip(-place, 0, _GROUP)].astype(np.int64)  # below the type's last digit
        room = _POWERS[np.clip(target.precision - place, 0, _GROUP)].astype(np.int64)
        misplaced = (group % cut != 0) | (group >= room)
        wrong |= misplaced
        digits = np.where(misplaced, 0, group // cut).astype(np.uint64)
        place = np.where(misplaced, 0, np.maximum(place, 0))
        below = _POWERS[np.clip(_HALF - place, 0, _GROUP)]  # the digits that belong to the lower half
        low += digits % below * _POWERS[np.minimum(place, _HALF)]
        high += digits // below * _POWERS[np.maximum(place - _HALF, 0)]
    return _joined(low, high, negative), wrong


def _joined(low: _Numbers, high: _Numbers, negative: _Numbers) -> _Numbers:
    """The halves in 128 bits, multiplied as one learns it at school, with 32 bits for a digit; then the sign."""
    factor = _POWERS[_HALF]
    ones = (high & _LOWER) * (factor & _LOWER)
    left, right = (high >> _SHIFT) * (factor & _LOWER), (high & _LOWER) * (factor >> _SHIFT)
    middle = (ones >> _SHIFT) + (left & _LOWER) + (right & _LOWER)
    lower = (ones & _LOWER) | (middle << _SHIFT)
    upper = (high >> _SHIFT) * (factor >> _SHIFT) + (left >> _SHIFT) + (right >> _SHIFT) + (middle >> _SHIFT)
    lower += low
    upper += lower < low
    limbs = np.empty((len(low), 2), np.uint64)
    limbs[:, 0] = np.where(negative, ~lower + np.uint64(1), lower)
    limbs[:, 1] = np.where(negative, ~upper + (lower == 0), upper)
    return limbs
