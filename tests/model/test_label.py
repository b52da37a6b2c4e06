"""Which texts can name a moment."""

import pytest

from headwater.model.errors import InputError
from headwater.model.protocols.source import check_label


@pytest.mark.parametrize("text", ["month-end", "v1.2", "2026-03-31", "A", "q1_2026", "x" * 128])
def test_a_label_can_be_a_tag(text):
    check_label(text)


@pytest.mark.parametrize(
    "text", ["", "main", "Main", "hw_abc", " a", "a b", "a/b", "-a", ".a", "42", "x" * 129, "ä", "a\n", "a`b", "a'b"]
)
def test_what_would_not_be_found_again_is_refused(text):
    with pytest.raises(InputError, match="cannot be a label"):
        check_label(text)
