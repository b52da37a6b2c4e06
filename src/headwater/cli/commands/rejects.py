"""`headwater rejects list`, `show` and `replay`: rejected rows (G8)."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.command import File, Name, ProjectFlags, Yes, confirm
from headwater.cli.output import Output, table
from headwater.model.errors import UnknownName

if TYPE_CHECKING:
    from headwater.engine.rejects.table import StoredReject
    from headwater.model.position.marks import Json

Stream = Annotated[str | None, typer.Option("--stream", help="Only this stream.")]
_REASON_LENGTH = 80


def list_rejects(
    out: Output,
    flags: ProjectFlags,
    name: Name,
    *,
    stream: Stream = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Show at most this many, the newest.")] = 100,
    file: File = None,
) -> None:
    """List the rejected rows of a pipeline.

    Each with its position in the source and the reason.
    """
    stored = _load(out, flags, name, file, stream)
    newest = stored[-limit:]
    rows = [
        (
            entry.reject.id,
            entry.reject.stream,
            _position(entry),
            entry.set_aside_at.strftime("%Y-%m-%d %H:%M:%S"),
            _short_reason(entry),
        )
        for entry in newest
    ]
    text = table(("id", "stream", "position", "rejected (UTC)", "reason"), rows) if rows else f"{name}: no rejects"
    out.value({"pipeline": name, "count": len(stored), "rejects": [_json(reject) for reject in newest]}, text)
    if len(newest) < len(stored):
        out.say(f"the newest {len(newest):,} of {len(stored):,}: --limit {len(stored)} shows all")


def show(
    out: Output,
    flags: ProjectFlags,
    name: Name,
    reject: Annotated[
        str, typer.Argument(metavar="ID", help="The id that `rejects list` shows, or its first characters.")
    ],
    *,
    file: File = None,
) -> None:
    """Show one reject in full.

    Its position, its reason, and its payload as the source sent it.
    """
    entry = _find(_load(out, flags, name, file, None), reject, name)
    lines = [
        f"id          {entry.reject.id}",
        f"stream      {entry.reject.stream}",
        *(f"{key:<11} {value}" for key, value in entry.reject.location.items()),
        f"rejected    {entry.set_aside_at:%Y-%m-%d %H:%M:%S} UTC, by run {entry.run}, in {entry.table}",
        f"reason      {entry.reject.reason}",
        *(f"{key:<11} {value}" for key, value in entry.reject.more.items()),
        "payload",
        _payload_text(entry),
    ]
    out.value(_json(entry), "\n".join(lines))


def replay(
    out: Output,
    flags: ProjectFlags,
    name: Name,
    rejects: Annotated[list[str] | None, typer.Argument(metavar="[ID…]", help="Only these; without any, all.")] = None,
    *,
    stream: Stream = None,
    file: File = None,
    yes: Yes = False,
) -> None:
    """Read rejects again, with the current settings.

    Rows that land leave the rejects; the others stay.
    """
    from headwater.cli.project import find_pipeline, open_project

    with open_project(flags, out, [file] if file else []) as project:
        pipeline = find_pipeline(project, name, file)
        stored = _filter_stream(pipeline.rejects(), stream)
        selected = [_find(stored, reject, name) for reject in rejects] if rejects else stored
        if not selected:
            out.value({"pipeline": name, "tried": 0, "landed": 0, "left": 0, "queued": 0}, f"{name}: no rejects")
            return
        out.say(f"{name}: reads {len(selected):,} of {len(stored):,} rejects again; they land after all other rows")
        if any(sink.iceberg and sink.iceberg.mode != "append" for sink in pipeline.settings.sinks):
            out.say("  a merging sink treats them as the newest rows of their keys")
        confirm(out, "replay", yes=yes)
        result = pipeline.replay(selected)
    data = {
        "pipeline": name,
        "tried": result.tried,
        "landed": result.landed,
        "left": result.left,
        "queued": result.queued,
    }
    rows = "row" if result.landed == 1 else "rows"
    text = f"{name}: {result.landed:,} {rows} landed, {result.left:,} of {result.tried:,} rejects left"
    objects = f"; {result.queued:,} object{'s' if result.queued != 1 else ''} queued for the next cycle"
    out.value(data, text + (objects if result.queued else ""))


def _load(out: Output, flags: ProjectFlags, name: str, file: Path | None, stream: str | None) -> Sequence[StoredReject]:
    from headwater.cli.project import find_pipeline, open_project

    with open_project(flags, out, [file] if file else []) as project:
        return _filter_stream(find_pipeline(project, name, file).rejects(), stream)


def _filter_stream(stored: Sequence[StoredReject], stream: str | None) -> list[StoredReject]:
    matches = [reject for reject in stored if stream in (None, reject.reject.stream)]
    if stored and not matches:
        streams = ", ".join(sorted({reject.reject.stream for reject in stored}))
        raise UnknownName(f"no rejects of stream {stream!r}", hint=f"streams with rejects: {streams}")
    return matches


def _find(stored: Sequence[StoredReject], text: str, name: str) -> StoredReject:
    matches = [reject for reject in stored if reject.reject.id.startswith(text)]
    if len(matches) != 1:
        problem = f"{len(matches)} rejects begin with {text!r}" if matches else f"no reject {text!r}"
        raise UnknownName(f"{name}: {problem}", hint=f"list them: headwater rejects list {name}")
    return matches[0]


def _json(entry: StoredReject) -> dict[str, Json]:
    return {
        "id": entry.reject.id,
        "stream": entry.reject.stream,
        **entry.reject.location,
        "reason": entry.reject.reason,
        "payload": base64.b64encode(entry.reject.payload).decode(),
        "text": _text(entry.reject.payload),
        **entry.reject.more,
        "run": entry.run,
        "set_aside_at": entry.set_aside_at.isoformat(),
        "table": entry.table,
    }


def _position(entry: StoredReject) -> str:
    return ", ".join(f"{key} {value}" for key, value in entry.reject.location.items() if value != entry.reject.stream)


def _short_reason(entry: StoredReject) -> str:
    reason = entry.reject.reason
    return reason if len(reason) <= _REASON_LENGTH else reason[: _REASON_LENGTH - 1] + "…"


def _payload_text(entry: StoredReject) -> str:
    text = _text(entry.reject.payload)
    return text if text is not None else f"{entry.reject.payload.hex(' ')}   (bytes, not UTF-8 text)"


def _text(payload: bytes) -> str | None:
    try:
        return payload.decode()
    except UnicodeDecodeError:
        return None
