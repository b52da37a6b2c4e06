"""A bucket of S3, or of a server with its protocol: listed page by page, with exact keys, and read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from html import unescape
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_plus
from xml.etree import ElementTree as ET

from headwater.model.errors import SourceUnreachable
from headwater.storage.container import (
    ObjectChanged,
    ObjectGone,
    ObjectRefused,
    ObjectVersion,
    Selection,
    listing_page,
    texts,
)
from headwater.storage.obstore_client import RETRY, cause_of, client_options, get, status_of
from headwater.storage.s3.client import ErrorResponse, Response, S3Client, no_response
from headwater.storage.s3.credentials import S3Access

if TYPE_CHECKING:
    import pyarrow as pa
    from obstore.store import S3Store


# obstore treats keys as paths: it refuses these keys, or reads another object.
_NOT_A_PATH = re.compile(r"^/|/$|//|(^|/)\.\.?(/|$)|[\x00-\x1f\x7f]")
_MISSING, _CHANGED = ("NoSuchKey", "NoSuchVersion"), 412
_ONE_OBJECT = ("AccessDenied", "InvalidObjectState", "KMS.")  # other objects may be readable


@dataclass(frozen=True)
class Bucket:
    """Keys are whole keys of the bucket. `min_age` uses the server's clock, from its responses."""

    access: S3Access
    selection: Selection
    page_size: int = 1000

    @property
    def address(self) -> str:
        return self.url(self.selection.root)

    def url(self, key: str) -> str:
        return f"s3://{self.access.bucket}/{key}"

    def listing(self, start_after: str | None = None) -> Iterator[pa.RecordBatch]:
        return list_pages(self._client, self.access, self.selection, start_after, self.page_size)

    def without_min_age(self) -> Bucket:
        return replace(self, selection=replace(self.selection, min_age=0))

    def stat(self, key: str) -> ObjectVersion | None:
        return stat_object(self._client, self.access, self.selection, key) if self.selection.includes(key) else None

    def fetch(self, version: ObjectVersion) -> bytes:
        return self._read(version, None)

    def fetch_range(self, version: ObjectVersion, start: int, end: int) -> bytes:
        end = min(end, version.size)
        return self._read(version, (start, end)) if start < end else b""

    def _read(self, version: ObjectVersion, byte_range: tuple[int, int] | None) -> bytes:
        try:
            if _NOT_A_PATH.search(version.key):
                return self._client.read(version, byte_range)
            return self._reader.read(version, byte_range)
        except ErrorResponse as response:
            raise self._error(version, response) from None

    def _error(self, version: ObjectVersion, response: ErrorResponse) -> Exception:
        url = self.url(version.key)
        if response.code in _MISSING:
            return ObjectGone(f"{url} was deleted")
        if response.status == _CHANGED:
            return ObjectChanged(f"{url} has changed since it was listed")
        if response.code.startswith(_ONE_OBJECT):
            return ObjectRefused(f"{url}: {response.code}: {response.message}")
        return response.unreachable(self.access, f"read {version.key!r}")

    @cached_property
    def _client(self) -> S3Client:
        return S3Client(self.access)

    @cached_property
    def _reader(self) -> S3Reader:
        return S3Reader(self.access)

    def __reduce__(self) -> tuple[object, ...]:
        # Without connections: a task makes its own.
        return (Bucket, (self.access, self.selection, self.page_size))


class S3Reader:
    """Reads one bucket; several threads may share it."""

    def __init__(self, access: S3Access) -> None:
        self._access, self._store = access, s3_store(access)

    def read(self, version: ObjectVersion, byte_range: tuple[int, int] | None) -> bytes:
        """The object, or a range of it, if it still has that version. Raises ErrorResponse, SourceUnreachable."""
        from obstore.exceptions import BaseError

        try:
            return get(self._store, version, byte_range)
        except (BaseError, OSError) as error:
            raise self._error(str(error)) from None

    def _error(self, text: str) -> Exception:
        status = status_of(text)
        return ErrorResponse.of(status, text) if status else no_response(self._access, f"read: {cause_of(text)}")


def s3_store(access: S3Access) -> S3Store:
    """Obstore's client of one bucket; several threads may share it."""
    from obstore.store import S3Store

    def keys() -> dict[str, Any]:
        valid = access.credentials.keys()
        assert valid is not None  # noqa: S101 - otherwise nothing is signed
        return {
            "access_key_id": valid.access_key,
            "secret_access_key": valid.secret_key.reveal(),
            "token": valid.session_token.reveal() if valid.session_token else None,
            "expires_at": valid.expires_at,
        }

    signing: dict[str, Any] = {"skip_signature": True}
    if access.credentials.keys() is not None:
        # Not as plain options: obstore would mix them with environment variables, such as the token of other keys.
        signing = {"credential_provider": keys}
    return S3Store(
        access.bucket,
        endpoint=access.endpoint,
        region=access.region,
        virtual_hosted_style_request=not access.path_style,
        client_options=client_options(allow_http=access.endpoint.startswith("http:"), ca_bundle=access.ca_bundle),
        retry_config=RETRY,
        **signing,
    )


# obstore treats keys as paths: one odd key fails a whole listing, and `a/` silently becomes `a`
# (docs/decisions/0013).

_NEXT = re.compile(rb"<NextContinuationToken>([^<]*)</")
_MICROSECONDS = "us"


def list_pages(
    client: S3Client, access: S3Access, selection: Selection, start_after: str | None, page_size: int
) -> Iterator[pa.RecordBatch]:
    """The selected objects. The next page is requested while one is processed."""
    query = {"list-type": "2", "encoding-type": "url", "max-keys": str(page_size), "prefix": selection.prefix}
    if selection.depth == 0:
        query["delimiter"] = "/"  # without the content of folders
    if start_after is not None:
        query["start-after"] = start_after
    last = ""
    with ThreadPoolExecutor(1, thread_name_prefix="listing") as prefetch:
        pending: Future[Response] | None = prefetch.submit(_request, client, access, dict(query))
        while pending is not None:
            response = pending.result()
            token = _NEXT.search(response.body)
            pending = None
            if token:
                query["continuation-token"] = unescape(token[1].decode())
                pending = prefetch.submit(_request, client, access, dict(query))
            page = parse_page(response.body, access)
            if page.num_rows:
                last = _check_order(page, last, access)
                selected = selection.select(page, response.server_time)
                if selected.num_rows:
                    yield selected


def stat_object(client: S3Client, access: S3Access, selection: Selection, key: str) -> ObjectVersion | None:
    """By a listing: an object's headers may have a time of another precision."""
    response = _request(client, access, {"list-type": "2", "encoding-type": "url", "max-keys": "1", "prefix": key})
    page = selection.select(parse_page(response.body, access), response.server_time)
    objects = page.to_pylist()
    return ObjectVersion(**objects[0]) if objects and objects[0]["key"] == key else None


def _request(client: S3Client, access: S3Access, query: dict[str, str]) -> Response:
    try:
        return client.get("", query)
    except ErrorResponse as error:
        raise error.unreachable(access, "list objects") from None


def parse_page(body: bytes, access: S3Access) -> pa.RecordBatch:
    """The objects of a page, without empty ones that represent folders."""
    try:
        root = ET.fromstring(body)  # noqa: S314 - expat bounds what entities may grow to
    except ET.ParseError as error:
        raise _bad_listing(access, f"the response is not XML ({error})") from None
    namespace, _, name = root.tag.rpartition("}")
    namespace += "}" if namespace else ""
    if name != "ListBucketResult":
        raise _bad_listing(access, "the response is not a list of objects")
    if root.findtext(f"{namespace}IsTruncated") == "true" and root.find(f"{namespace}NextContinuationToken") is None:
        raise _bad_listing(access, "the list is truncated and has no continuation token")
    try:
        return _objects(root, namespace)
    except (KeyError, ValueError) as error:
        raise _bad_listing(access, f"an object lacks key, size or time ({error})") from None


def _objects(root: ET.Element, namespace: str) -> pa.RecordBatch:
    import pyarrow as pa

    escaped = root.findtext(f"{namespace}EncodingType") == "url"  # some servers ignore the request for it
    key_tag, size_tag, etag_tag, time_tag = (f"{namespace}{name}" for name in ("Key", "Size", "ETag", "LastModified"))
    keys, etags, sizes, times = [], [], [], []
    for contents in root.iter(f"{namespace}Contents"):
        fields = {element.tag: element.text or "" for element in contents}
        key, size = fields[key_tag], int(fields[size_tag])
        if escaped:
            key = unquote_plus(key, errors="strict")
        if size or not key.endswith("/"):
            keys.append(key)
            etags.append(fields.get(etag_tag, "").strip('"'))
            sizes.append(size)
            times.append(fields[time_tag])
    modified = texts(times).cast(pa.timestamp(_MICROSECONDS, "UTC")).cast(pa.int64())
    return listing_page(keys, etags, sizes, modified)


def _bad_listing(access: S3Access, problem: str) -> SourceUnreachable:
    return SourceUnreachable(f"{access}: list objects: {problem}", hint="check that endpoint is an S3 server")


def _check_order(page: pa.RecordBatch, last: str, access: S3Access) -> str:
    """Return the page's last key. The ledger is merged with the listing: out of order, objects would seem new or gone."""
    import pyarrow.compute as pc

    keys = page["key"]
    if str(keys[0]) > last and pc.all(pc.less(keys.slice(0, len(keys) - 1), keys.slice(1))).as_py() is not False:
        return str(keys[-1])
    first, second = next(pair for pair in pairwise([last, *keys.to_pylist()]) if pair[0] >= pair[1])
    raise SourceUnreachable(
        f"{access}: list objects: the server lists {first!r} before {second!r}, not in the order of their bytes",
        hint="copy the objects to a general purpose bucket: directory buckets (S3 Express) are not listed in order",
    )
