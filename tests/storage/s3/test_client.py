"""Answers that the servers of other tests never give: a small server of our own gives them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from headwater.config.project import S3Settings
from headwater.config.sources.objects import ObjectsSourceSettings
from headwater.model.errors import SourceUnreachable
from headwater.storage.container import ObjectRefused, ObjectVersion
from headwater.storage.open import open_container
from tests.storage.containers import keys, listed, opened_bucket
from tests.support.stack import S3ForTests

_SPACE = 'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'


class Answers(ThreadingHTTPServer):
    """Gives prepared answers, one for each request."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.prepared: list[tuple[int, dict[str, str], str]] = []
        self.asked: list[str] = []

    def answer(self, status: int, body: str, **headers: str) -> None:
        self.prepared.append((status, headers, body))

    @property
    def s3(self) -> S3ForTests:
        return S3ForTests(f"http://127.0.0.1:{self.server_address[1]}", "us-east-1", "key", "not-to-be-seen")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Answers

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        status, headers, body = self.server.prepared.pop(0)
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body.encode())))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: object) -> None:
        """A test's output is its own."""


@pytest.fixture
def server() -> Iterator[Answers]:
    answers = Answers()
    thread = threading.Thread(target=answers.serve_forever)
    thread.start()
    yield answers
    answers.shutdown()
    thread.join()
    answers.server_close()


def _page(*names: str, more: str = "") -> str:
    objects = "".join(
        f"<Contents><Key>{name}</Key><LastModified>2024-01-02T03:04:05.678Z</LastModified>"
        f"<ETag>&quot;e&quot;</ETag><Size>1</Size></Contents>"
        for name in names
    )
    token = f"<NextContinuationToken>{more}</NextContinuationToken>" if more else ""
    return f"<ListBucketResult {_SPACE}>{token}{objects}</ListBucketResult>"


def _refused(code: str, message: str = "because") -> str:
    return f"<Error><Code>{code}</Code><Message>{message}</Message><AWSAccessKeyId>key</AWSAccessKeyId></Error>"


def test_a_busy_server_is_asked_again(server: Answers) -> None:
    server.answer(503, _refused("SlowDown"))
    server.answer(500, "")
    server.answer(200, _page("a", "b", more="a&amp;b"))
    server.answer(503, _refused("SlowDown"))
    server.answer(200, _page("c"))
    assert keys(opened_bucket(server.s3, "b")) == ["a", "b", "c"]
    assert "continuation-token=a%26b" in server.asked[-1]


def test_a_server_that_stays_busy_is_told(server: Answers) -> None:
    for _ in range(10):
        server.answer(503, _refused("SlowDown", "reduce your request rate"))
    with pytest.raises(SourceUnreachable, match="list objects: SlowDown: reduce your request rate"):
        keys(opened_bucket(server.s3, "b"))


@pytest.mark.parametrize("names", [["b", "a"], ["a", "a"], ["\uffee", "\U0001f600", "\uffed"]])
def test_a_listing_out_of_order_is_no_listing(server: Answers, names: list[str]) -> None:
    server.answer(200, _page(*names))
    with pytest.raises(SourceUnreachable, match="not in the order of their bytes") as caught:
        keys(opened_bucket(server.s3, "b"))
    assert f"lists {names[-2]!r} before {names[-1]!r}" in str(caught.value)


def test_pages_out_of_order_are_no_listing(server: Answers) -> None:
    server.answer(200, _page("a", "c", more="t"))
    server.answer(200, _page("b"))
    with pytest.raises(SourceUnreachable, match="lists 'c' before 'b'"):
        keys(opened_bucket(server.s3, "b"))


def test_another_region_is_named(server: Answers) -> None:
    server.answer(301, _refused("PermanentRedirect"), x_amz_bucket_region="eu-north-1")
    with pytest.raises(SourceUnreachable) as caught:
        keys(opened_bucket(server.s3, "b"))
    assert caught.value.hint == "the bucket is in another region: set region: eu-north-1"


def test_what_is_no_s3_is_told(server: Answers) -> None:
    server.answer(200, "<html><body>Welcome!</html>")
    with pytest.raises(SourceUnreachable, match="not XML") as caught:
        keys(opened_bucket(server.s3, "b"))
    assert "check that endpoint is an S3 server" in caught.value.hint
    server.answer(200, "<html><body>Welcome!</body></html>")
    with pytest.raises(SourceUnreachable, match="not a list of objects"):
        keys(opened_bucket(server.s3, "b"))


def test_a_proxy_is_asked_for_what_lies_behind_it(server: Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", server.s3.endpoint)
    monkeypatch.setenv("no_proxy", "")
    settings = S3Settings(endpoint="http://store.example:81", path_style=False, anonymous=True)
    container = open_container(ObjectsSourceSettings(url="s3://b", s3=settings), Path("/"), S3Settings())
    server.answer(200, _page("a", "a//b"))
    versions = listed(container)
    for key, version in versions.items():
        server.answer(200, "content")
        assert container.fetch(version) == b"content"
        assert server.asked[-1] == f"http://b.store.example:81/{key}"
    assert server.asked[0].startswith("http://b.store.example:81/?encoding-type=url&list-type=2")


def test_a_page_that_cannot_be_followed_is_not_the_last(server: Answers) -> None:
    server.answer(200, _page("a").replace("</ListBucketResult>", "<IsTruncated>true</IsTruncated></ListBucketResult>"))
    with pytest.raises(SourceUnreachable, match="no continuation token"):
        keys(opened_bucket(server.s3, "b"))


@pytest.mark.parametrize("part", ["<Size>1</Size>", "2024-01-02T03:04:05.678Z"])
def test_a_listing_that_lacks_something_is_told(server: Answers, part: str) -> None:
    server.answer(200, _page("a").replace(part, ""))
    with pytest.raises(SourceUnreachable, match="an object lacks key, size or time"):
        keys(opened_bucket(server.s3, "b"))


@pytest.mark.parametrize("key", ["a", "a//b"])
def test_a_404_that_is_not_of_s3_is_no_missing_object(server: Answers, key: str) -> None:
    server.answer(404, "")  # as a proxy gives it for a server that it does not know
    with pytest.raises(SourceUnreachable, match="HTTP status 404"):
        opened_bucket(server.s3, "b").fetch(ObjectVersion(key, "e", 1, 0))


@pytest.mark.parametrize("key", ["a", "a//b"])
@pytest.mark.parametrize("code", ["AccessDenied", "InvalidObjectState", "KMS.DisabledException"])
def test_one_object_that_is_refused_is_told_from_all_of_them(server: Answers, key: str, code: str) -> None:
    server.answer(403, _refused(code, "not for you"))
    with pytest.raises(ObjectRefused, match=f"{key}: {code}: not for you") as caught:
        opened_bucket(server.s3, "b").fetch(ObjectVersion(key, "e", 1, 0))
    assert "not-to-be-seen" not in str(caught.value)
