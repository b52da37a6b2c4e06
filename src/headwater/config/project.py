"""Settings that pipelines share: `headwater.yaml`, optional, beside the pipelines. S3, Kafka Connect, the lake, Spark."""

from __future__ import annotations

from pydantic import Field, field_validator

from headwater.config.settings import SecretText, Settings


class S3Settings(Settings):
    """What is left out here comes from AWS's own variables and files (`AWS_ENDPOINT_URL`, `AWS_PROFILE`, …)."""

    endpoint: str | None = Field(default=None, examples=["http://localhost:9000"])
    """The server's address; by default Amazon's."""
    region: str | None = Field(default=None, examples=["eu-central-1"])
    """The bucket's region."""
    access_key: SecretText | None = None
    """With `secret_key`; otherwise AWS's own variables, profile or role."""
    secret_key: SecretText | None = None
    """With `access_key`."""
    session_token: SecretText | None = None
    """For temporary credentials."""
    profile: str | None = None
    """A profile of AWS's configuration files."""
    role: str | None = Field(default=None, examples=["arn:aws:iam::123456789012:role/reader"])
    """A role to assume with these credentials."""
    anonymous: bool = False
    """Send unsigned requests: for public buckets."""
    path_style: bool | None = None
    """Put the bucket in the path instead of the host's name; by default true with an `endpoint`."""


class ConnectSettings(Settings):
    """The REST interface of a Kafka Connect cluster; any worker works."""

    url: str | None = Field(default=None, examples=["http://connect:8083"])
    """Its address. Default: the worker of the local stack, if it runs, else http://localhost:8083."""
    username: str | None = None
    """For workers that require basic authentication."""
    password: SecretText | None = None
    """With `username`."""

    @field_validator("url")
    @classmethod
    def _is_an_address(cls, url: str | None) -> str | None:
        if url is not None and not url.startswith(("http://", "https://")):
            raise ValueError(
                "write an address such as http://connect:8083"
            )  # the value stays out: it may hold a secret
        return url


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
    """All of headwater.yaml."""

    progress: SecretText | list[SecretText] = SecretText("sqlite:///.headwater/progress.db")
    """`memory:`, `file:///…`, `sqlite:///…`, `postgresql://…`; a list is multi-level, the last one decides."""
    lake: LakeSettings = LakeSettings()
    """Where Iceberg tables live."""
    spark: SparkSettings = SparkSettings()
    """The Spark session."""
    s3: S3Settings = S3Settings()
    """The connection to S3, for sources and sinks without an `s3` of their own."""
    connect: ConnectSettings = ConnectSettings()
    """Where Kafka Connect is, for `headwater connect`."""

    @property
    def progress_levels(self) -> list[SecretText]:
        """The stores from the first to the deciding one."""
        return self.progress if isinstance(self.progress, list) else [self.progress]
