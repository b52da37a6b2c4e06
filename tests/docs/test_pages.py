"""The documentation cannot go stale: its commands run, its links lead somewhere, its guarantees name real tests."""

import json
import re
from pathlib import Path

import pytest

from headwater.services.stack.stack import Stack
from headwater.testing.crashes import lend
from tests.docs.walkthrough import walk
from tests.support.warm_processes import make_default, warm_programs

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
WALKED = [ROOT / "README.md", *sorted(ROOT.glob("docs/how-to/*.md"))]
# What a newcomer types first runs just as he would run it; and Spark code takes paths from where its JVM was started.
COLD = {"README", "first-pipeline", "python-api"}


@pytest.fixture
def warm_jvm(spark):
    """The worker's JVM for the commands of a page, each with a session of its own."""
    yield json.dumps(lend(spark))
    make_default(spark)


@pytest.mark.spark
@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", WALKED, ids=lambda page: page.stem)
def test_every_command_of_the_page_prints_what_the_page_shows(page, tmp_path, database, request):
    environment, programs = {"PG_URL": database}, []
    if page.stem not in COLD:
        environment["WARM_JVM"] = request.getfixturevalue("warm_jvm")
        programs = [warm_programs().commands]
    try:
        assert walk(page, tmp_path, environment, programs) > 0
    finally:
        # A page that broke off may have left servers behind.
        stack = Stack(tmp_path / ".headwater" / "stack")
        stack.down()
        stack.remove()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        other = (page.parent / name).resolve() if name else page
        assert other.exists(), f"{target} does not exist"
        if anchor:
            assert anchor in anchors(other), f"{other.name} has no #{anchor}"


def anchors(page: Path) -> set[str]:
    text = page.read_text()
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}
    return anchors | set(re.findall(r'<a id="([^"]+)">', text))


def test_every_guarantee_is_explained_and_shown_by_tests_that_exist():
    text = (ROOT / "docs/guarantees.md").read_text()
    assert {f"g{number}" for number in range(1, 13)} <= anchors(ROOT / "docs/guarantees.md")
    named = re.findall(r"`(tests/[\w/.]+)::(\w+)`", text)
    assert len(named) >= 12
    for file, test in named:
        assert f"def {test}(" in (ROOT / file).read_text(), f"{file} has no {test}"


def test_every_decision_is_listed():
    listed = (ROOT / "docs/decisions/README.md").read_text()
    assert [page.name for page in (ROOT / "docs/decisions").glob("0*.md") if page.name not in listed] == []


def test_code_that_points_at_a_page_points_at_one_that_exists():
    for source in (ROOT / "src").rglob("*.py"):
        for target in re.findall(r"docs/[\w\-/]+\.md(?:#[\w-]+)?", source.read_text()):
            name, _, anchor = target.partition("#")
            assert (ROOT / name).exists(), f"{source} points at {target}"
            assert not anchor or anchor in anchors(ROOT / name), f"{source} points at {target}"
