"""`headwater rejects list`, `show` and `replay`: rows that were set aside (G8)."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.command import ProjectFlags
from headwater.cli.completion import Name
from headwater.cli.output import Output, table
from headwater.model.errors import UnknownName

if TYPE_CHECKING:
    from headwater.engine.reject_shelf import KeptReject
    from headwater.model.marks import Json

File = Annotated[
    Path | None,
    typer.Option("--file", help="The pipeline's file. Default: the one with that name beside headwater.yaml."),
]
Stream = Annotated[str | None, typer.Option("--stream", help="Only those of this stream.")]
_SHOWN_REASON = 80


def list_rejects(
    out: Output,
    flags: ProjectFlags,
    name: Name,
    *,
    stream: Stream = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many, the newest.")] = 100,
    file: File = None,
) -> None:
    """List the rows that a pipeline has set aside.

    Where each stood, and why it could not be kept.
    """
    kept = _kept(out, flags, name, file, stream)
    shown = kept[-limit:]
    rows = [
        (one.reject.id, one.reject.stream, _place(one), one.set_aside_at.strftime("%Y-%m-%d %H:%M:%S"), _short(one))
        for one in shown
    ]
    text = table(("id", "stream", "place", "set aside (UTC)", "reason"), rows) if rows else f"{name}: no rejects"
    out.value({"pipeline": name, "count": len(kept), "rejects": [_json(one) for one in shown]}, text)
    if len(shown) < len(kept):
        out.say(f"the newest {len(shown):,} of {len(kept):,}: --limit {len(kept)} shows all")


def show(
    out: Output,
    flags: ProjectFlags,
    name: Name,
    reject: Annotated[str, typer.Argument(metavar="ID", help="As `rejects list` shows it, or its beginning.")],
    *,
    file: File = None,
) -> None:
    """Show one reject whole.

    Its place, its reason, and its payload as the source gave it.
    """
    kept = _kept(out, flags, name, file, None)
    one = _with_id(kept, reject, name)
    lines = [
        f"id          {one.reject.id}",
        f"stream      {one.reject.stream}",
        *(f"{key:<11} {value}" for key, value in one.reject.place.items()),
        f"set aside   {one.set_aside_at:%Y-%m-%d %H:%M:%S} UTC, by run {one.run}, in {one.table}",
        f"reason      {one.reject.reason}",
        *(f"{key:<11} {value}" for key, value in one.reject.more.items()),
        "payload",
        _payload_text(one),
    ]
    out.value(_json(one), "\n".join(lines))


def replay(
    out: Output,
    flags: ProjectFlags,
    name: Name,
    rejects: Annotated[list[str] | None, typer.Argument(metavar="[ID…]", help="Only these; without any, all.")] = None,
    *,
    stream: Stream = None,
    file: File = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Try rejects again, under the settings as they are now.

    What lands is removed from the rejects; what still cannot be kept stays there.
    """
    from headwater.cli.opening import opened_project, pipeline_named  # noqa: PLC0415 - not paid for by --help
    from headwater.cli.rewind import confirm  # noqa: PLC0415

    with opened_project(flags, out, [file] if file else []) as project:
        pipeline = pipeline_named(project, name, file)
        kept = _of_stream(pipeline.rejects(), stream)
        chosen = [_with_id(kept, one, name) for one in rejects] if rejects else kept
        if not chosen:
            out.value({"pipeline": name, "tried": 0, "landed": 0, "left": 0, "queued": 0}, f"{name}: no rejects")
            return
        out.say(f"{name}: {len(chosen):,} of {len(kept):,} rejects are tried again and land behind all other rows")
        if any(sink.iceberg and sink.iceberg.mode != "append" for sink in pipeline.settings.sinks):
            out.say("  a sink that merges takes them for the newest rows of their keys")
        if not yes:
            confirm(out, "replay")
        done = pipeline.replay(chosen)
    data = {"pipeline": name, "tried": done.tried, "landed": done.landed, "left": done.left, "queued": done.queued}
    rows = "row" if done.landed == 1 else "rows"
    text = f"{name}: {done.landed:,} {rows} landed, {done.left:,} of {done.tried:,} rejects are left"
    objects = f"; {done.queued:,} whole object{'s' if done.queued != 1 else ''} will be read by the next cycle"
    out.value(data, text + (objects if done.queued else ""))


def _kept(out: Output, flags: ProjectFlags, name: str, file: Path | None, stream: str | None) -> Sequence[KeptReject]:
    from headwater.cli.opening import opened_project, pipeline_named  # noqa: PLC0415 - not paid for by --help

    with opened_project(flags, out, [file] if file else []) as project:
        return _of_stream(pipeline_named(project, name, file).rejects(), stream)


def _of_stream(kept: Sequence[KeptReject], stream: str | None) -> list[KeptReject]:
    chosen = [one for one in kept if stream in (None, one.reject.stream)]
    if kept and not chosen:
        known = ", ".join(sorted({one.reject.stream for one in kept}))
        raise UnknownName(f"no rejects of a stream {stream!r}", hint=f"there are rejects of: {known}")
    return chosen


def _with_id(kept: Sequence[KeptReject], text: str, name: str) -> KeptReject:
    found = [one for one in kept if one.reject.id.startswith(text)]
    if len(found) != 1:
        what = f"{len(found)} rejects begin with {text!r}" if found else f"no reject {text!r}"
        raise UnknownName(f"{name}: {what}", hint=f"list them: headwater rejects list {name}")
    return found[0]


def _json(one: KeptReject) -> dict[str, Json]:
    return {
        "id": one.reject.id,
        "stream": one.reject.stream,
        **one.reject.place,
        "reason": one.reject.reason,
        "payload": base64.b64encode(one.reject.payload).decode(),
        "text": _text(one.reject.payload),
        **one.reject.more,
        "run": one.run,
        "set_aside_at": one.set_aside_at.isoformat(),
        "table": str(one.table),
    }


def _place(one: KeptReject) -> str:
    return ", ".join(f"{key} {value}" for key, value in one.reject.place.items() if value != one.reject.stream)


def _short(one: KeptReject) -> str:
    reason = one.reject.reason
    return reason if len(reason) <= _SHOWN_REASON else reason[: _SHOWN_REASON - 1] + "…"


def _payload_text(one: KeptReject) -> str:
    text = _text(one.reject.payload)
    return text if text is not None else f"{one.reject.payload.hex(' ')}   (bytes; no text)"


def _text(payload: bytes) -> str | None:
    try:
        return payload.decode()
    except UnicodeDecodeError:
        return None
