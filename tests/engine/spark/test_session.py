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


def test_a_lake_is_the_same_under_another_spelling_of_its_folder(spark, tmp_path: Path, lake_folder) -> None:
    lake = LakeSettings(warehouse=f"file://{lake_folder}", catalog={"type": "jdbc"})
    assert SessionHolder(ProjectSettings(lake=lake), tmp_path, list)().sparkContext is spark.sparkContext


def test_a_catalog_server_is_the_same_whatever_the_default_warehouse_is(spark, tmp_path: Path) -> None:
    name, lake = "spark.sql.catalog.served", LakeSettings(name="served", catalog={"type": "rest", "uri": "http://a"})
    for option, value in {"": "org.apache.iceberg.spark.SparkCatalog", ".type": "rest", ".uri": "http://a"}.items():
        spark.conf.set(name + option, value)
    assert SessionHolder(ProjectSettings(lake=lake), tmp_path, list)().sparkContext is spark.sparkContext
    other = lake.model_copy(update={"catalog": {"type": "rest", "uri": "http://b"}})
    with pytest.raises(InputError, match="another catalog 'served': its uri is http://a, the project's http://b"):
        SessionHolder(ProjectSettings(lake=other), tmp_path, list)()


def test_transforms_see_utc_in_a_session_that_was_there(spark, tmp_path: Path) -> None:
    """G5: the same window, finished by another process, has the same days."""
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    session = SessionHolder(ProjectSettings(lake=LakeSettings(name="beside_utc")), tmp_path, list)()
    ((day,),) = session.sql("SELECT CAST(CAST(timestamp'2026-03-02T02:00:00Z' AS DATE) AS STRING)").collect()
    assert day == "2026-03-02"
