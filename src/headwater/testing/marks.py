"""The laws of marks, for every kind: call them with any marks of one kind, from Hypothesis or by hand.

Equal means equal as values. Two marks are at the same position when each covers the other; that is weaker:
marks may hold different details about one position.
"""

from __future__ import annotations

import json
from typing import TypeVar

from headwater.model.position.marks import Mark, mark_from_json

M = TypeVar("M", bound=Mark)


def check_join_is_commutative(a: M, b: M) -> None:
    assert a.join(b) == b.join(a)


def check_join_is_associative(a: M, b: M, c: M) -> None:
    assert a.join(b).join(c) == a.join(b.join(c))


def check_join_is_idempotent(a: M) -> None:
    assert a.join(a) == a


def check_join_is_the_least_upper_bound(a: M, b: M, c: M) -> None:
    """Not below either, and covered by whatever covers both."""
    joined = a.join(b)
    assert joined.covers(a)
    assert joined.covers(b)
    if c.covers(a) and c.covers(b):
        assert c.covers(joined)


def check_covers_is_a_preorder(a: M, b: M, c: M) -> None:
    """Reflexive and transitive."""
    assert a.covers(a)
    if a.covers(b) and b.covers(c):
        assert a.covers(c)


def check_covers_agrees_with_join(a: M, b: M) -> None:
    """A mark covers another exactly when joining that one does not take it further."""
    joined = a.join(b)
    assert a.covers(b) == (a.covers(joined) and joined.covers(a))


def check_covers_is_total(a: M, b: M) -> None:
    """Only for marks with one coordinate, such as a column's."""
    assert a.covers(b) or b.covers(a)


def check_json_round_trip(a: Mark) -> None:
    """Through text, as stores keep it; and one value has one text, by which windows are recognised (G5)."""
    text = json.dumps(a.to_json())
    again = mark_from_json(json.loads(text))
    assert again == a
    assert type(again) is type(a)
    assert json.dumps(again.to_json()) == text
    assert str(again) == str(a)


def check_all_laws(a: M, b: M, c: M) -> None:
    """Every law that holds for every kind of mark."""
    check_join_is_commutative(a, b)
    check_join_is_associative(a, b, c)
    check_join_is_idempotent(a)
    check_join_is_the_least_upper_bound(a, b, c)
    check_covers_is_a_preorder(a, b, c)
    check_covers_agrees_with_join(a, b)
    check_json_round_trip(a)
