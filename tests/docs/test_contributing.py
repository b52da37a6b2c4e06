"""The sink that CONTRIBUTING.md shows keeps the contract of sinks."""

from pathlib import Path

from tests.docs.walkthrough import walk

PAGE = Path(__file__).parents[2] / "CONTRIBUTING.md"


def test_the_sink_of_the_page_passes_the_contract(tmp_path):
    assert walk(PAGE, tmp_path, {}) == 1
