"""Settings that pipelines share: `headwater.yaml`, optional, beside the pipelines."""

from __future__ import annotations

from pydantic import Field

from headwater.config.connect import ConnectSettings
from headwater.config.frozen import SecretText, Settings
from headwater.config.s3 import S3Settings


class LakeSettings(Settings):
    """Where Iceberg tables live. By default a folder with an embedded catalog on SQLite."""

    name: str = Field(default="lake", pattern=r"^[A-Za-z_]\w*$", examples=["lake"])
    """The catalog's name: the first part of a table's name."""
    warehouse: str = "./lake"
    """A folder beside headwater.yaml, or a URL that the catalog's FileIO can write."""
    catalog: dict[str, str] = {}
    """Options of another Iceberg catalog (`type: rest`, `uri: …`), passed to Spark as they are."""


class SparkSettings(Settings):
    """The Spark session that pipelines share."""

    master: str = Field(default="local[*]", examples=["local[*]", "spark://host:7077"])
    """Where Spark runs: `local[*]`, `spark://…`, `k8s://…`, `yarn`."""
    conf: dict[str, str] = {}
    """Any Spark option."""
    memory: str = Field(default="2g", pattern=r"^\d+[kmgtKMGT]$", examples=["2g"])
    """Memory of the driver in local mode."""


class ProjectSettings(Settings):
    """The whole of headwater.yaml."""

    progress: SecretText | list[SecretText] = SecretText("sqlite:///.headwater/progress.db")
    """`memory:`, `file:///…`, `sqlite:///…`, `postgresql://…`; a list is multi-level, the last one decides."""
    lake: LakeSettings = LakeSettings()
    """Where Iceberg tables live."""
    spark: SparkSettings = SparkSettings()
    """The Spark session."""
    s3: S3Settings = S3Settings()
    """How S3 is reached, by sources and sinks that do not say it themselves."""
    connect: ConnectSettings = ConnectSettings()
    """Where Kafka Connect is, for `headwater connect`."""

    @property
    def progress_levels(self) -> list[SecretText]:
        """The stores from the first to the deciding one."""
        return self.progress if isinstance(self.progress, list) else [self.progress]
