"""Compressed objects: by the ending of their names, or as the settings say."""

from __future__ import annotations

import gzip

import pyarrow as pa

from tests.sources.formats.case import Case, File, case


def zstd(data: bytes) -> bytes:
    out = pa.BufferOutputStream()
    with pa.CompressedOutputStream(out, "zstd") as stream:
        stream.write(data)
    return bytes(out.getvalue().to_pybytes())


def gz(data: bytes) -> bytes:
    return gzip.compress(data, mtime=0)


LINES = b"".join(b'{"a": %d}\n' % number for number in range(100))
ROWS = [(number,) for number in range(100)]


def good(name: str, file: str, content: bytes, **options: str) -> Case:
    return case(name, "json", File(content, file), ROWS, schema="a bigint", **options)


def bad(name: str, file: str, content: bytes) -> Case:
    reason = "bad gzip: …" if file.endswith("gz") else "bad zstd: …"
    return case(name, "json", File(content, file), rejects={None: reason}, schema="a bigint")


CASES = [
    good("gzip", "x.gz", gz(LINES)),
    good("gzip in two members", "x.json.gz", gz(LINES[:50]) + gz(LINES[50:])),
    good("zstd", "x.json.ZST", zstd(LINES)),
    good("zstd in two frames", "x.zst", zstd(LINES[:50]) + zstd(LINES[50:])),
    good("gzip without the ending", "x", gz(LINES), compression="gzip"),
    good("zstd under another ending", "x.gz", zstd(LINES), compression="zstd"),
    good("an ending that means nothing", "x.gz", LINES, compression="none"),
    case("an empty gzip", "json", File(gz(b""), "x.gz"), schema="a bigint"),
    case("no bytes at all", "json", File(b"", "x.gz"), schema="a bigint"),
    case("gzip of columns", "csv", File(gz(b"a\n1\n"), "x.csv.gz"), [(1,)], columns="a bigint"),
    case("gzip of fields", "json", File(gz(b'[{"a": 1}]'), "x.gz"), [(1,)], columns="a bigint"),
    case("gzip of text", "text", File(gz(b"a\nb"), "x.gz"), [("a",), ("b",)], columns="value string"),
    case("zstd of bytes", "binary", File(zstd(b"\x00"), "x.zst"), [(b"\x00",)], columns="value binary"),
    case(
        "gzip kept as it is",
        "binary",
        File(gz(b"a"), "x.gz"),
        [(gz(b"a"),)],
        columns="value binary",
        compression="none",
    ),
    bad("gzip that is none", "x.gz", LINES),
    bad("gzip without its last byte", "x.gz", gz(LINES)[:-1]),
    bad("gzip that ends in the midst", "x.gz", gz(LINES)[:40]),
    bad("gzip with more behind it", "x.gz", gz(LINES) + b"more"),
    bad("gzip with another checksum", "x.gz", gz(LINES)[:-6] + b"\x00\x00" + gz(LINES)[-4:]),
    bad("zstd that is none", "x.zst", LINES),
    bad("zstd without its last byte", "x.zst", zstd(LINES)[:-1]),
    bad("zstd with other bytes", "x.zst", zstd(LINES)[:20] + b"\x00" * 60 + zstd(LINES)[80:]),
    bad("zstd with more behind it", "x.zst", zstd(LINES) + b"more"),
]
