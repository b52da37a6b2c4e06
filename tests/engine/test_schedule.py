"""When the next cycle begins."""

from __future__ import annotations

import datetime as dt

import pytest

from headwater.engine.retry import backoff_seconds, worth_retrying
from headwater.engine.runner import next_start
from headwater.model.errors import LeaseHeld, SchemaRefused

NOON = dt.datetime(2026, 3, 1, 12, 0, tzinfo=dt.UTC)


def after(**parts: float) -> dt.datetime:
    return NOON + dt.timedelta(**parts)


def test_an_interval_counts_from_start_to_start():
    assert next_start("5s", NOON, after(seconds=2)) == after(seconds=5)


def test_a_cycle_that_took_longer_than_its_interval_is_followed_at_once():
    assert next_start("5s", NOON, after(seconds=9)) == after(seconds=9)


def test_a_cron_line_names_the_next_moment_after_the_cycle():
    assert next_start("*/15 * * * *", NOON, after(minutes=16)) == after(minutes=30)


@pytest.mark.parametrize(("failures", "seconds"), [(1, 1), (2, 2), (5, 16), (9, 256), (10, 300), (60, 300)])
def test_retries_wait_longer_each_time_up_to_five_minutes(failures, seconds):
    assert backoff_seconds(failures) == seconds


def test_only_what_passes_by_itself_is_retried():
    assert worth_retrying(LeaseHeld("held"))
    assert not worth_retrying(SchemaRefused("narrowed"))
