"""S3's ListObjectsV2, page by page, with the keys as they are.

Not obstore's: it takes a key for a path, so one odd key fails a whole listing, and `a/` silently becomes `a`
(docs/decisions/0013).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from html import unescape
from itertools import pairwise
from typing import TYPE_CHECKING
from urllib.parse import unquote_plus
from xml.etree import ElementTree as ET

from headwater.model.errors import SourceUnreachable
from headwater.sources.objects.columns import listing_page, texts
from headwater.sources.objects.container import ObjectVersion
from headwater.sources.objects.s3_access import S3Access
from headwater.sources.objects.s3_requests import Answer, Refusal, S3Requests
from headwater.sources.objects.selection import Selection

if TYPE_CHECKING:
    import pyarrow as pa

_NEXT = re.compile(rb"<NextContinuationToken>([^<]*)</")
_MICROSECONDS = "us"


def list_pages(
    requests: S3Requests, access: S3Access, selection: Selection, start_after: str | None, page_size: int
) -> Iterator[pa.RecordBatch]:
    """The selected objects. While one page is looked at, the next is on its way."""
    query = {"list-type": "2", "encoding-type": "url", "max-keys": str(page_size), "prefix": selection.prefix}
    if selection.depth == 0:
        query["delimiter"] = "/"  # folders below are not walked through
    if start_after is not None:
        query["start-after"] = start_after
    last = ""
    with ThreadPoolExecutor(1, thread_name_prefix="listing") as ahead:
        asked: Future[Answer] | None = ahead.submit(_ask, requests, access, dict(query))
        while asked is not None:
            answer = asked.result()
            token = _NEXT.search(answer.body)
            asked = None
            if token:
                query["continuation-token"] = unescape(token[1].decode())
                asked = ahead.submit(_ask, requests, access, dict(query))
            page = parse_page(answer.body, access)
            if page.num_rows:
                last = _ascending(page, last, access)
                selected = selection.keep(page, answer.moment)
                if selected.num_rows:
                    yield selected


def list_one(requests: S3Requests, access: S3Access, selection: Selection, key: str) -> ObjectVersion | None:
    """One object by a listing too: an object's own headers may give its time with another precision."""
    answer = _ask(requests, access, {"list-type": "2", "encoding-type": "url", "max-keys": "1", "prefix": key})
    page = selection.keep(parse_page(answer.body, access), answer.moment)
    found = page.to_pylist()
    return ObjectVersion(**found[0]) if found and found[0]["key"] == key else None


def _ask(requests: S3Requests, access: S3Access, query: dict[str, str]) -> Answer:
    try:
        return requests.get("", query)
    except Refusal as refusal:
        raise refusal.unreachable(access, "list objects") from None


def parse_page(body: bytes, access: S3Access) -> pa.RecordBatch:
    """A page's objects, without the empty ones that stand for folders."""
    try:
        root = ET.fromstring(body)  # noqa: S314 - expat bounds what entities may grow to
    except ET.ParseError as error:
        raise _no_listing(access, f"the answer is no XML ({error})") from None
    space, _, name = root.tag.rpartition("}")
    space += "}" if space else ""
    if name != "ListBucketResult":
        raise _no_listing(access, "the answer is no list of objects")
    if root.findtext(f"{space}IsTruncated") == "true" and root.find(f"{space}NextContinuationToken") is None:
        raise _no_listing(access, "there is more to list, and the answer does not say how to ask for it")
    try:
        return _objects(root, space)
    except (KeyError, ValueError) as error:
        raise _no_listing(access, f"an object without key, size or time ({error})") from None


def _objects(root: ET.Element, space: str) -> pa.RecordBatch:
    import pyarrow as pa  # noqa: PLC0415 - loaded while the first page is on its way

    escaped = root.findtext(f"{space}EncodingType") == "url"  # some servers ignore that we asked for it
    of_key, of_size, of_etag, of_time = (f"{space}{name}" for name in ("Key", "Size", "ETag", "LastModified"))
    keys, etags, sizes, times = [], [], [], []
    for contents in root.iter(f"{space}Contents"):
        found = {element.tag: element.text or "" for element in contents}
        key, size = found[of_key], int(found[of_size])
        if escaped:
            key = unquote_plus(key, errors="strict")
        if size or not key.endswith("/"):
            keys.append(key)
            etags.append(found.get(of_etag, "").strip('"'))
            sizes.append(size)
            times.append(found[of_time])
    modified = texts(times).cast(pa.timestamp(_MICROSECONDS, "UTC")).cast(pa.int64())
    return listing_page(keys, etags, sizes, modified)


def _no_listing(access: S3Access, what: str) -> SourceUnreachable:
    return SourceUnreachable(f"{access}: list objects: {what}", hint="see whether endpoint is a server of S3")


def _ascending(page: pa.RecordBatch, last: str, access: S3Access) -> str:
    """The page's last key. The ledger is merged with the listing: out of order, objects would seem new or gone."""
    import pyarrow.compute as pc  # noqa: PLC0415

    keys = page["key"]
    if str(keys[0]) > last and pc.all(pc.less(keys.slice(0, len(keys) - 1), keys.slice(1))).as_py() is not False:
        return str(keys[-1])
    first, second = next(pair for pair in pairwise([last, *keys.to_pylist()]) if pair[0] >= pair[1])
    raise SourceUnreachable(
        f"{access}: list objects: the server lists {first!r} before {second!r}, which is not the order of their bytes",
        hint="directory buckets (S3 Express) and some servers cannot be watched; copy the objects to another bucket",
    )
