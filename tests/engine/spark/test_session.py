"""The session of a process that has one already: shared, and left to those who made it."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.config.project import LakeSettings, ProjectSettings
from headwater.engine.spark.session import SessionHolder
from headwater.model.errors import InputError

pytestmark = pytest.mark.spark


def test_a_session_that_was_there_is_shared_and_not_stopped(spark, tmp_path: Path) -> None:
    holder = SessionHolder(ProjectSettings(lake=LakeSettings(name="beside")), tmp_path, list)
    assert holder().sparkContext is spark.sparkContext
    holder().sql("CREATE NAMESPACE beside.shop")
    holder.stop()
    assert spark.range(3).count() == 3
    assert holder().sparkContext is spark.sparkContext
    assert [row.namespace for row in spark.sql("SHOW NAMESPACES IN beside").collect()] == ["shop"]


def test_a_lake_is_refused_in_a_session_that_has_another_one_by_its_name(spark, tmp_path: Path, lake_folder) -> None:
    holder = SessionHolder(ProjectSettings(), tmp_path, list)
    with pytest.raises(InputError, match=f"another catalog 'lake': its warehouse is file:{lake_folder}, the project's"):
        holder()
    assert spark.conf.get("spark.sql.catalog.lake.warehouse") == f"file:{lake_folder}"
