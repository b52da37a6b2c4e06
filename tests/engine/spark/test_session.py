"""The session of a process that has one already: shared, and left to those who made it."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.config.project import ProjectSettings
from headwater.engine.spark.session import SessionHolder

pytestmark = pytest.mark.spark


def test_a_session_that_was_there_is_shared_and_not_stopped(spark, tmp_path: Path) -> None:
    holder = SessionHolder(ProjectSettings(), tmp_path, list)
    assert holder().sparkContext is spark.sparkContext
    holder.stop()
    assert spark.range(3).count() == 3
    assert holder().sparkContext is spark.sparkContext
