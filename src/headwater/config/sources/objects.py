"""Settings of the `objects` source."""

from __future__ import annotations

import warnings
from typing import Literal

from pydantic import Field, field_validator, model_validator

from headwater.config.ddl import parse_ddl
from headwater.config.project import S3Settings
from headwater.config.settings import Bytes, Duration, OneKind, Settings
from headwater.config.sources.kafka import DebeziumSettings, KafkaClientSettings
from headwater.model.rows import CHANGE_COLUMNS

ObjectMetadata = Literal["url", "etag", "modified", "row"]
SCHEMES = ("s3", "file", "gs", "az")

_EVENT_METADATA: tuple[ObjectMetadata, ...] = ("url", "row", "modified")

# `schema` is what users call it; pydantic keeps a deprecated method of that name.
warnings.filterwarnings("ignore", message='Field name "schema"')


def check_url(url: str) -> str:
    """The url of a folder or a bucket's prefix, if it is well-formed."""
    scheme, separator, rest = url.partition("://")
    if separator and scheme not in SCHEMES:
        raise ValueError(f"{scheme}:// is not supported; write s3://, file:///, gs:// or az://")
    if separator and scheme == "file" and not rest.startswith("/"):
        raise ValueError("a file url has three slashes: file:///folder/")
    if separator and scheme != "file" and not rest.partition("/")[0]:
        raise ValueError(f"{url!r} names no bucket; write {scheme}://bucket/prefix/")
    return url


class CsvSettings(Settings):
    """The CSV dialect."""

    header: bool = True
    """Whether the first line names the columns."""
    delimiter: str = Field(default=",", min_length=1, max_length=1)
    """Between two values."""
    quote: str = Field(default='"', min_length=1, max_length=1)
    """Around a value that holds a delimiter or a line break; doubled within it."""
    escape: str | None = Field(default=None, min_length=1, max_length=1)
    """Before a character that is taken literally."""
    null: list[str] = [""]
    """Unquoted values that mean NULL."""


class EventTopicSettings(KafkaClientSettings):
    """A topic of notifications."""

    topic: str
    """Its name."""


class EventFeedSettings(OneKind):
    """S3 notifications about new objects, in their JSON form."""

    kafka: EventTopicSettings | None = None
    """A topic that the store writes them to."""
    folder: str | None = None
    """A folder or url with a file per notification, or a line for each, in the order of their names."""

    @field_validator("folder")
    @classmethod
    def _known_scheme(cls, folder: str | None) -> str | None:
        return folder if folder is None else check_url(folder)


class ObjectsSourceSettings(Settings):
    """Watch a bucket or a folder, and read new and changed objects."""

    url: str = Field(examples=["s3://bucket/prefix/"])
    """`s3://bucket/prefix/`, `file:///folder/`, `gs://bucket/prefix/`, `az://container/prefix/`. A path without a scheme is a folder beside the pipeline file."""
    pattern: str = Field(default="**", examples=["**/*.jsonl"])
    """Which objects, by their key below `url`: `*` and `?` stay within a folder, `**` crosses them, `{a,b}` is either."""
    ignore: list[str] = ["**/_*", "**/.*"]
    """Patterns of objects that are never read; a folder that matches is ignored with all its content. By default the files that writers keep beside their data."""
    recursive: bool = True
    """Look into folders below `url`."""
    min_age: Duration = Field(default="0s", validate_default=True)
    """Skip objects that changed more recently: their writer may not have finished."""
    format: Literal["json", "csv", "parquet", "avro", "text", "binary", "debezium"] = "json"
    """json: an object a line, or documents. text: a row per line, `value`. binary: a row per object, `value`. debezium: change events of one table in JSON, as Kafka Connect's S3 sinks write them, see docs/how-to/read-debezium.md."""
    json_as: Literal["auto", "lines", "document"] = "auto"
    """For json and debezium: a JSON object on each line, or documents: JSON objects and arrays of them, over any lines. auto looks at each object's first line."""
    csv: CsvSettings = CsvSettings()
    """For csv: its dialect."""
    compression: Literal["auto", "none", "gzip", "zstd"] = "auto"
    """auto: by the key's ending, .gz or .zst."""
    schema: str | None = Field(default=None, examples=["id bigint, amount decimal(12,2), at timestamp"])  # type: ignore[assignment]
    """For json, csv and debezium: the columns as Spark's DDL; fields that it does not name are left out. Without it the columns are inferred from the objects of each window, and kept."""
    debezium: DebeziumSettings = DebeziumSettings()
    """For debezium: what its events do not contain."""
    metadata: list[ObjectMetadata] | dict[ObjectMetadata, str] = ["url"]
    """Metadata columns beside the content: of url, etag, modified, row (its number in the object, from 1). A list names them `object_url`, `object_etag` …; a mapping sets names: `{url: source_file}`. `[]`: none. For debezium url, row and modified by default: they identify an event and its arrival."""
    max_objects: int = Field(default=100_000, gt=0)
    """Objects per window."""
    max_bytes: Bytes = Field(default=4_000_000_000, gt=0, examples=["1GB"])
    """Bytes per window, as the objects are stored; a larger object gets its own window. `500MB`, `4GB`."""
    split_bytes: Bytes = Field(default=256_000_000, gt=0, examples=["64MB"])
    """About how much one task reads: small objects share a task, large ones are split where their format allows it."""
    order: Literal["any", "lexical"] = "any"
    """lexical: new objects always have greater keys than all before (dates in their names), so only the end is listed. Changes of older objects are not seen."""
    deleted: Literal["ignore", "remove_rows"] = "ignore"
    """Objects that were deleted: leave their rows, or remove them (for sinks with `mode: replace_object`)."""
    tries: int = Field(default=5, gt=0)
    """How often to try an object that cannot be read before it becomes a reject."""
    retry_after: Duration = Field(default="30s", validate_default=True)
    """The wait before the second try; it doubles with every further one."""
    feed: EventFeedSettings | None = None
    """Notifications to act on between listings."""
    listing_every: Duration = Field(default="1h", validate_default=True)
    """With `feed`: how often to list everything all the same, for notifications that were lost."""
    stream: str | None = None
    """The stream's name; by default the last part of `url`."""
    s3: S3Settings | None = None
    """For s3://; by default that of headwater.yaml, and AWS's own variables."""
    storage_options: dict[str, str] = {}
    """For gs:// and az://: options of the object store's client, as obstore spells them."""

    @property
    def metadata_columns(self) -> dict[ObjectMetadata, str]:
        """What is shown of an object → the column's name."""
        if isinstance(self.metadata, dict):
            return dict(self.metadata)
        as_written = self.format != "debezium" or "metadata" in self.model_fields_set
        return {name: f"object_{name}" for name in (self.metadata if as_written else _EVENT_METADATA)}

    @field_validator("url")
    @classmethod
    def _known_scheme(cls, url: str) -> str:
        return check_url(url)

    @field_validator("schema")
    @classmethod
    def _is_ddl(cls, ddl: str | None) -> str | None:
        if ddl is not None:
            parse_ddl(ddl)
        return ddl

    @model_validator(mode="after")
    def _fits_together(self) -> ObjectsSourceSettings:
        if self.schema is not None and self.format not in ("json", "csv", "debezium"):
            raise ValueError(f"schema is for json, csv and debezium; {self.format} has its own columns")
        if self.format != "debezium" and "debezium" in self.model_fields_set:
            raise ValueError("debezium: … belongs to format: debezium")
        names = [name.lower() for name in self.metadata_columns.values()]
        names += CHANGE_COLUMNS if self.format == "debezium" else ()
        if len(set(names)) != len(names) or "" in names:
            ours = f"; {', '.join(CHANGE_COLUMNS)} are taken" if self.format == "debezium" else ""
            raise ValueError(f"metadata: every column needs a distinct name{ours}")
        if self.order == "lexical" and self.deleted == "remove_rows":
            raise ValueError("order: lexical lists only new keys, so it never sees that an object was deleted")
        if self.order == "lexical" and self.feed is not None:
            raise ValueError(
                "order: lexical lists only keys after the last known one, so it would not find objects that the feed missed; "
                "remove one of the two"
            )
        return self
