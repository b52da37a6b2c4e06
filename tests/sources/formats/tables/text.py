"""Texts and bytes, as they are."""

from __future__ import annotations

from tests.sources.formats.case import OBJECTS, Case, File, Records, case, differs

TEXT, BINARY = "value string", "value binary"


def lines(name: str, content: bytes | str, *values: str) -> Case:
    return case(name, "text", File(content), [(value,) for value in values], columns=TEXT)


CASES = [
    case("a text", "text", Records("a", "é\u2028ü\x0b\x85"), [("a",), ("é\u2028ü\x0b\x85",)], columns=TEXT),
    case("an empty text", "text", Records("", "b", ""), [("",), ("b",), ("",)], columns=TEXT),
    case("a NUL", "text", Records("a\x00b"), [("a\x00b",)], columns=TEXT),
    case("blanks", "text", Records(" a\t"), [(" a\t",)], columns=TEXT),
    case(
        "no UTF-8",
        "text",
        Records(b"a", b"\xff", b"c\xed\xa0\x80", b"d"),
        [("a",), ("d",)],
        columns=TEXT,
        rejects={2: "not UTF-8 at byte 0", 3: "not UTF-8 at byte 1"},
    ),
    differs(
        case("a carriage return at the end", "text", Records("a\r", "b\r"), [("a\r",), ("b\r",)], columns=TEXT),
        OBJECTS,
        "in a file it is a part of the line break",
        rows=[("a",), ("b",)],
    ),
    differs(
        case("a mark of UTF-8 in front", "text", Records("\ufeffa", "\ufeffb"), [("\ufeffa",), ("\ufeffb",)], columns=TEXT),
        OBJECTS,
        "a file begins with the mark of its encoding; a message is what was sent",
        rows=[("a",), ("\ufeffb",)],
    ),
    case("a text of several lines", "text", Records("a\nb\n", None), [("a\nb\n",), (None,)], columns=TEXT),
    case("a tombstone of a text is left out", "text", Records("a", None), [("a",)], columns=TEXT, tombstones="skip"),
    lines("lines", b"a\nb\n", "a", "b"),
    lines("no newline at the end", b"a\r\nb", "a", "b"),
    lines("blank lines are rows", b"a\n\nb\n\n", "a", "", "b", ""),
    lines("nothing", b""),
    lines("a newline alone", b"\n", ""),
    lines("carriage returns alone are no line breaks", b"a\rb\r", "a\rb\r"),
    case("bytes", "binary", Records(b"\x00\xff\n"), [(b"\x00\xff\n",)], columns=BINARY),
    case("no bytes", "binary", Records(b""), [(b"",)], columns=BINARY),
    case("a tombstone of bytes", "binary", Records(b"\x00", None), [(b"\x00",), (None,)], columns=BINARY),
]  # fmt: skip
