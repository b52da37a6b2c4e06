"""Settings that pipelines share: `headwater.yaml`, optional, beside the pipelines."""

from __future__ import annotations

from pydantic import Field

from headwater.config.frozen import SecretText, Settings


class LakeSettings(Settings):
    """Where Iceberg tables live. By default a folder with an embedded catalog on SQLite."""

    name: str = Field(default="lake", pattern=r"^[A-Za-z_]\w*$")
    """The catalog's name: the first part of a table's name."""
    warehouse: str = "./lake"
    """A folder beside headwater.yaml, or a URL that the catalog's FileIO can write."""
    catalog: dict[str, str] = {}
    """Options of another Iceberg catalog (`type: rest`, `uri: …`), passed to Spark as they are."""


class SparkSettings(Settings):
    """The Spark session that pipelines share."""

    master: str = "local[*]"
    conf: dict[str, str] = {}
    """Any Spark option."""
    memory: str = "2g"
    """Memory of the driver in local mode."""


class ProjectSettings(Settings):
    """The whole of headwater.yaml."""

    progress: SecretText | list[SecretText] = SecretText("sqlite:///.headwater/progress.db")
    """`memory:`, `file:///…`, `sqlite:///…`, `postgresql://…`; a list is multi-level, the last one decides."""
    lake: LakeSettings = LakeSettings()
    spark: SparkSettings = SparkSettings()
