"""Settings of the `files` sink."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from headwater.config.project import S3Settings
from headwater.config.settings import Settings
from headwater.config.sources.kafka import KafkaSourceSettings


class FilesSinkSettings(Settings):
    """Land rows as files, one folder per window; or Kafka's messages in the layout of Kafka Connect's S3 sinks."""

    path: str = Field(examples=["./landed/{stream}"])
    """A folder or URL (`s3://bucket/folder`); `{stream}` is replaced by the stream's name."""
    format: Literal["parquet", "json", "csv"] = "parquet"
    """Of the files; json has one object a line, csv a header."""
    publish: Literal["auto", "rename", "manifest"] = "auto"
    """rename: the folder appears with all its files. manifest: files count once the window's manifest names them."""
    layout: Literal["windows", "connect"] = "windows"
    """windows: as `format` and `publish` say. connect: messages of a kafka source, one JSON object a line, in `topic/partition=N/topic+N+offset.json`; see docs/how-to/manage-connect.md."""
    fields: Literal["all", "value"] = "all"
    """For `layout: connect`. all: a line holds key, value, offset, partition, timestamp and headers, as far as the source's metadata has them. value: only the unchanged value."""
    file_offsets: int = Field(default=10_000, gt=0)
    """For `layout: connect`: how many offsets a file holds at most."""
    s3: S3Settings | None = None
    """For `s3://`, in place of the project's `s3`."""

    @model_validator(mode="after")
    def _goes_together(self) -> FilesSinkSettings:
        written = self.model_fields_set
        if self.layout == "connect":
            if self.format != "json" and "format" in written:
                raise ValueError("layout: connect writes JSON; leave format out")
            if self.publish != "auto":
                raise ValueError("layout: connect has no windows to publish; leave publish out")
            if "{stream}" in self.path:
                raise ValueError("layout: connect has a folder per topic; leave {stream} out of path")
        elif written & {"fields", "file_offsets"}:
            raise ValueError("fields and file_offsets belong to layout: connect")
        return self


def check_holds_messages(source: KafkaSourceSettings | None, source_type: str, *, transformed: bool) -> None:
    """Files are named by topic, partition and offset, and hold messages unchanged (G12)."""
    subject = "files with layout: connect"
    if source is None:
        raise ValueError(f"{subject} are named by Kafka's offsets, and the source is {source_type}; leave layout out")
    if source.format not in ("text", "binary"):
        raise ValueError(f"{subject} hold messages unchanged; write source.kafka.format: text (or binary)")
    columns = source.metadata_columns
    for name in ("partition", "offset"):
        if name not in columns:
            raise ValueError(f"{subject} need {name} among source.kafka.metadata")
    for name, column in columns.items():
        if column != f"kafka_{name}":
            raise ValueError(f"{subject} find {name} in kafka_{name}; write source.kafka.metadata as a list")
    if transformed:
        raise ValueError(f"{subject} hold messages unchanged; remove the transform")
