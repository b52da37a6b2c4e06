"""Which keys patterns select: against a matcher that is slow and obvious."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headwater.config.sources.objects import ObjectsSourceSettings
from headwater.model.errors import InputError
from headwater.storage.container import Selection, expand, integers, listing_page

_TEXTS = st.sampled_from(["a", "b", ".", "_", "-", "é", "\n", "\U0001f600", " ", "\\", "+", "^", "$", "(", "|", "#"])
_CLASSES = st.sampled_from(
    ["[ab]", "[!a]", "[^a-b]", "[+-9]", "[]a]", "[a-]", "[!]]", "[\\]", "[[]", "[*]", "[é-\U0001f600]"]
)
_PIECES = st.one_of(_TEXTS, _CLASSES, st.sampled_from(["*", "?", "**", "/", "**/", "/**", "]", "}"]))
_PATTERNS = st.recursive(
    st.lists(_PIECES, max_size=6).map("".join),
    lambda inner: st.tuples(inner, st.lists(inner, min_size=1, max_size=3), inner).map(
        lambda three: f"{three[0]}{{{','.join(three[1])}}}{three[2]}"
    ),
    max_leaves=4,
)
_KEYS = st.lists(st.one_of(_TEXTS, st.sampled_from(["/", "a/", "]", "}", "*", "["])), max_size=8).map("".join)


def _matches(pattern: str, key: str, *, begins: bool = True) -> bool:
    """One alternative, without braces. `begins`: at the beginning of a folder's name."""
    if not pattern:
        return not key
    if pattern.startswith("**"):
        rest = pattern.lstrip("*")
        if begins and rest.startswith("/"):
            tails = [key, *(key[at + 1 :] for at, character in enumerate(key) if character == "/")]
            return any(_matches(rest[1:], tail) for tail in tails)
        return any(_matches(rest, key[at:], begins=False) for at in range(len(key) + 1))
    if pattern[0] == "*":
        within = len(key.partition("/")[0])
        return any(_matches(pattern[1:], key[at:], begins=False) for at in range(within + 1))
    if not key:
        return False
    if pattern[0] == "[":
        end = pattern.index("]", 3 if pattern[1] in "!^" else 2)
        fits, rest = key[0] != "/" and _in_class(pattern[1:end], key[0]), pattern[end + 1 :]
    else:
        fits = key[0] != "/" if pattern[0] == "?" else key[0] == pattern[0]
        rest = pattern[1:]
    return fits and _matches(rest, key[1:], begins=pattern[0] == "/")


def _in_class(members: str, character: str) -> bool:
    if members[0] in "!^":
        return not _in_class(members[1:], character)
    if len(members) >= 3 and members[1] == "-":
        return members[0] <= character <= members[2] or (len(members) > 3 and _in_class(members[3:], character))
    return members[0] == character or (len(members) > 1 and _in_class(members[1:], character))


def _expanded(pattern: str) -> list[str]:
    """Braces from the innermost, by looking at the text alone."""
    close = next((at for at, character in enumerate(pattern) if character == "}" and "{" in pattern[:at]), None)
    if close is None:
        return [pattern]
    start = pattern.rindex("{", 0, close)
    choices = pattern[start + 1 : close].split(",")
    # A comma of an outer brace must not be cut by the next round: the innermost is replaced one choice at a time.
    return [text for choice in choices for text in _expanded(pattern[:start] + choice + pattern[close + 1 :])]


def _selection(pattern: str = "**", ignore: tuple[str, ...] = (), root: str = "", **more: object) -> Selection:
    settings: dict[str, object] = {"pattern": pattern, "ignore": list(ignore), **more}
    return Selection.of(ObjectsSourceSettings(url="s3://b", **settings), root)  # type: ignore[arg-type]


def _selected(selection: Selection, keys: list[str], modified: int = 0, now: int = 0) -> list[str]:
    page = listing_page(keys, [""] * len(keys), [0] * len(keys), integers([modified] * len(keys)))
    return selection.select(page, now)["key"].to_pylist()


@given(pattern=_PATTERNS, keys=st.lists(_KEYS, min_size=1, max_size=8), root=st.sampled_from(["", "in/", "a.+/"]))
@example(pattern="**/*.json", keys=["a.json", "x/a.json", "x/y/.json", "json", "x.jsonl"], root="")
@example(pattern="a/**/b", keys=["a/b", "a/x/b", "a/x/y/b", "ab", "a/xb"], root="")
@example(pattern="{a,b/{c,d*}}/[!x]", keys=["a/y", "b/c/y", "b/dd/y", "a/x", "b/c/"], root="in/")
def test_patterns_mean_what_the_plain_matcher_says(pattern: str, keys: list[str], root: str) -> None:
    wanted = [key for key in keys if any(_matches(alternative, key) for alternative in _expanded(pattern))]
    selection = _selection(pattern, root=root)
    assert [key for key in keys if selection.includes(root + key)] == wanted
    assert _selected(selection, [root + key for key in keys]) == [root + key for key in wanted]
    for key in wanted:
        assert (root + key).startswith(selection.prefix)
        assert selection.depth is None or key.count("/") <= selection.depth
        folders = [key[: at + 1] for at, character in enumerate(key) if character == "/"]
        assert all(selection.may_contain(root + folder) for folder in folders)


@given(ignore=_PATTERNS, keys=st.lists(_KEYS, min_size=1, max_size=8))
def test_what_is_ignored_is_so_with_all_that_is_in_it(ignore: str, keys: list[str]) -> None:
    def ignored(key: str) -> bool:
        above = [key, *(key[:at] for at, character in enumerate(key) if character == "/")]
        return any(_matches(alternative, name) for alternative in _expanded(ignore) for name in above)

    selection = _selection(ignore=(ignore,))
    assert [key for key in keys if selection.includes(key)] == [key for key in keys if not ignored(key)]
    assert _selected(selection, keys) == [key for key in keys if not ignored(key)]


def test_by_default_what_writers_keep_beside_their_data_is_left_out() -> None:
    selection = Selection.of(ObjectsSourceSettings(url="s3://b/in"), "in/")
    left = ["in/_SUCCESS", "in/.part.crc", "in/_temporary/0/part.json", "in/x/_delta_log/0.json", "in/.git/config"]
    selected = ["in/part.json", "in/x/a_b.json", "in/x/y.z/c"]
    assert _selected(selection, [*left, *selected]) == selected
    assert [key for key in (*left, *selected) if selection.includes(key)] == selected


def test_without_folders_only_the_first_level_is_selected() -> None:
    selection = _selection(recursive=False, root="in/")
    assert _selected(selection, ["in/a", "in/x/b", "in/"]) == ["in/a", "in/"]
    assert (selection.includes("in/x/b"), selection.depth, selection.may_contain("in/x/")) == (False, 0, False)
    with pytest.raises(InputError, match="selects nothing"):
        _selection("x/*", recursive=False)


def test_young_objects_are_left_out() -> None:
    selection = _selection(min_age="2s")
    assert _selected(selection, ["a"], modified=8_000_000, now=10_000_000) == ["a"]
    assert _selected(selection, ["a"], modified=8_000_001, now=10_000_000) == []


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("{a,b", "has no }"),
        ("[ab", "has no ]"),
        ("[b-a]", "is not a range"),
        ("[/]", "matches nothing"),
        ("{a,b}" * 12, "1,000"),
    ],
)
def test_patterns_that_mean_nothing_are_refused(pattern: str, message: str) -> None:
    with pytest.raises(InputError) as refused:
        _selection(pattern)
    assert message in str(refused.value)
    with pytest.raises(InputError):
        _selection(ignore=(pattern,))


def test_braces_within_braces() -> None:
    assert expand("{a,b{c,d}}.{x,}") == ["a.x", "a.", "bc.x", "bc.", "bd.x", "bd."]
    assert expand("[{]a,b}") == ["[{]a,b}"]
