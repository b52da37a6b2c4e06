"""The record of a published window: which files count, how many rows they hold, who wrote them."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from headwater.model.errors import PublishConflict, SettingsError
from headwater.model.landing import Landing
from headwater.model.sink import Attempt


@dataclass(frozen=True)
class Part:
    """One file."""

    name: str
    rows: int
    bytes: int


@dataclass(frozen=True)
class Record:
    """What `_landing.json` and a manifest hold."""

    pipeline: str
    stream: str
    window: str
    run: str
    epoch: int
    format: str
    published_at: str
    rows: int
    files: tuple[Part, ...]

    @classmethod
    def of(cls, attempt: Attempt, stream: str, kind: str, parts: Sequence[Part]) -> Record:
        return cls(
            pipeline=attempt.pipeline,
            stream=stream,
            window=attempt.window.id,
            run=attempt.run,
            epoch=attempt.epoch,
            format=kind,
            published_at=dt.datetime.now(dt.UTC).isoformat(timespec="microseconds"),
            rows=sum(part.rows for part in parts),
            files=tuple(parts),
        )

    def to_bytes(self) -> bytes:
        return (json.dumps({"version": 1, **asdict(self)}, indent=1) + "\n").encode()

    @classmethod
    def read(cls, data: bytes, attempt: Attempt, stream: str, where: str) -> Record:
        """The record of a window of this pipeline and stream; what stands there instead is refused."""
        try:
            fields = json.loads(data)
            fields.pop("version")
            record = cls(**{**fields, "files": tuple(Part(**part) for part in fields["files"])})
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise PublishConflict(
                f"{where} is no record of a window ({type(error).__name__})",
                hint="something else wrote there: move it away, or give the pipeline a path of its own",
            ) from error
        if (record.pipeline, record.stream) != (attempt.pipeline, stream):
            # Two pipelines in one folder could take each other's windows for their own.
            raise SettingsError(
                f"{where} holds stream {record.stream} of pipeline {record.pipeline}, "
                f"and {attempt.pipeline} wants to land {stream} there",
                hint="give each pipeline a path of its own",
            )
        return record

    def landing(self, label: str, where: str, seconds: float) -> Landing:
        return Landing(label, self.stream, self.window, self.rows, seconds, {"published": where, "run": self.run})
