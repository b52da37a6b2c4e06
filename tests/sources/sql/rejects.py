"""What a window reads where rows are rejected: the other rows, and the rejects."""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence

from headwater.model.rows import Reject, Rows
from tests.sources.sql.poller import Poller, stored, stored_window


def poll_with_rejects(poller: Poller) -> tuple[list[dict], list[Reject]]:
    """One cycle."""
    window = poller.look()
    if window is None:
        return [], []
    with poller.source.read(stored_window(window)) as streams:
        result = read_with_rejects(streams)
    poller.mark = stored(window.end)
    return result


def read_with_rejects(streams: Sequence[Rows]) -> tuple[list[dict], list[Reject]]:
    rows: list[dict] = []
    rejects: list[Reject] = []
    for stream in streams:
        for split in stream.splits:
            sent = pickle.loads(pickle.dumps(split))  # noqa: S301 - as to a worker
            for batch in sent.read(rejects.append):
                batch.validate(full=True)
                assert batch.schema == stream.schema
                rows += batch.to_pylist()
    return rows, rejects


def payloads(rejects: Sequence[Reject]) -> list[dict]:
    return [json.loads(reject.payload) for reject in rejects]


def locations(rejects: Sequence[Reject]) -> list[dict]:
    return [{**reject.location, "row": json.loads(reject.location["row"])} for reject in rejects]
