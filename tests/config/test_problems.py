"""Each kind of mistake in a settings file: where it is, and what to write instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.config.load import load_pipelines, load_project
from headwater.model.errors import SettingsError

GOOD = """\
pipeline: content
source:
  sql:
    url: ${URL}
    table: cms.content
    cursor: seq
sinks:
  - console: {}
"""
SQL = GOOD[GOOD.index("  sql:") : GOOD.index("sinks:")]
ENVIRONMENT = {"URL": "postgresql://reader:hunter2@db/shop", "EMPTY": ""}

# What replaces a line of GOOD, and what the report must say about it.
MISTAKES = {
    "a tab": ("  sql:", "\tsql:", "content.yaml:3:1", "a tab indents this line; YAML wants spaces"),
    "broken yaml": ("table: cms.content", "table: [cms", "content.yaml:6:11", "a '[' is not closed"),
    "a second colon": ("cursor: seq", "cursor: seq: id", "content.yaml:6:16", "put the value in quotes"),
    "an open quote": ("cursor: seq", "cursor: 'seq", "content.yaml:9:1", "a quote is not closed"),
    "wrong indentation": ("    cursor: seq", "   cursor: seq", "content.yaml:6:4", "indentation"),
    "an alias by accident": ("cursor: seq", "cursor: *seq", "content.yaml:6:13", "put it in quotes"),
    "a duplicate key": ("cursor: seq", "cursor: seq\n    cursor: id", "content.yaml:7:5", "first one is on line 6"),
    "a wrong type": ("cursor: seq", "cursor: [seq]", "content.yaml:6:13", "expected a text, found a list"),
    "text for a number": ("cursor: seq", "cursor: seq\n    splits: many", "content.yaml:7:13", "a whole number, found 'many'"),
    "true for a number": ("cursor: seq", "cursor: seq\n    splits: true", "content.yaml:7:13", "a whole number, found 'true'"),
    "too small": ("cursor: seq", "cursor: seq\n    max_rows: 0", "content.yaml:7:15", "a number above 0, found '0'"),
    "an unknown setting": ("cursor: seq", "cursr: seq", "content.yaml:6:5  source.sql.cursr", "did you mean 'cursor'?"),
    "a setting of elsewhere": ("pipeline: content", "pipeline: content\nmax_rows: 5", "content.yaml:2:1", "it belongs at source.sql.max_rows or source.kafka.max_rows"),
    "nothing like it": ("pipeline: content", "pipeline: content\nzzz: 5", "content.yaml:2:1", "known here: pipeline, every"),
    "unknown in an inner place": ("cursor: seq", "cursor: seq\n    jdbc: {jarr: x}", "content.yaml:7:12  source.sql.jdbc.jarr", "did you mean 'jar'?"),
    "an unknown source": ("  sql:", "  sqll:", "content.yaml:3:3  source.sqll", "unknown kind of source; did you mean 'sql'?"),
    "an unknown sink": ("- console: {}", "- consol: {}", "content.yaml:8:5  sinks[1].consol", "unknown kind of sink; did you mean 'console'?"),
    "a sink without settings": ("- console: {}", "- console", "content.yaml:8:5", "write console: {…}"),
    "two kinds in one item": ("- console: {}", "- console: {}\n    files: {path: x}", "content.yaml:8:5  sinks[1]", "exactly one kind of sink here: console, files, kafka or iceberg"),
    "a misspelt word": ("- console: {}", "- iceberg: {table: lake.a.b, mode: mrege}", "content.yaml:8:38", "found 'mrege'; did you mean 'merge'?"),
    "a missing setting": ("    cursor: seq\n", "", "content.yaml:3:3  source.sql.cursor", "missing; write for example cursor: updated_at"),
    "a missing setting of a sink": ("- console: {}", "- iceberg: {mode: merge}", "content.yaml:8:5  sinks[1].iceberg.table", "missing; write for example table:"),
    "no subject": ("    table: cms.content\n", "", "content.yaml:4:5  source.sql", "exactly one of table, tables and query"),
    "sinks not a list": ("  - console: {}", "  console: {}", "content.yaml:8:3  sinks", "begins with '- '"),
    "no sinks": ("  - console: {}", "  []", "content.yaml:8:3  sinks", "empty; write for example sinks: "),
    "a reader that was removed": (SQL, "  kafka: {brokers: b, topics: [t], reader: spark}\n", "content.yaml:3:36  source.kafka.reader", "reader: spark was removed, and librdkafka reads every topic; delete this line"),
    "options of a reader that was removed": (SQL, "  kafka: {brokers: b, topics: [t], spark_options: {}}\n", "content.yaml:3:36  source.kafka.spark_options", "write librdkafka's under options"),
    "a bad duration": ("pipeline: content", "pipeline: content\njitter: 5 parsecs", "content.yaml:2:9  jitter", "write for example 5s, 10m or 1h30m"),
    "a bare number": ("pipeline: content", "pipeline: content\nevery: 5", "content.yaml:2:8  every", "write the unit too, for example 5s"),
    "a bad cron line": ("pipeline: content", "pipeline: content\nevery: 61 * * * *", "content.yaml:2:8  every", "not a cron line"),
    "no interval": ("pipeline: content", "pipeline: content\nevery: often", "content.yaml:2:8  every", "write a duration (5s, 10m) or a cron line"),
    "no lease": ("pipeline: content", "pipeline: content\nlease: 0s", "content.yaml:2:8  lease", "above zero"),
    "an unset variable": ("cursor: seq", "cursor: ${CURSOR}", "content.yaml:6:13  source.sql.cursor", "set it, or write ${CURSOR:-default}"),
    "a broken variable": ("cursor: seq", "cursor: ${CURSOR", "content.yaml:6:13  source.sql.cursor", "write $${ for a plain ${"),
    "a bad transform": ("sinks:", "transform: {python: clean}\nsinks:", "content.yaml:7:21  transform.python", "write for example python: shop.clean:only_paid"),
    "a transform misspelt": ("sinks:", "transform: {pyton: a:b}\nsinks:", "content.yaml:7:13  transform.pyton", "did you mean 'python'?"),
    "objects of a table": ("- console: {}", "- console: {}\n  - iceberg: {table: lake.a.b, mode: replace_object}", "content.yaml:8:3  sinks", "sinks[2].iceberg.mode: replace_object is for a source of objects, and this one is sql; write mode: append, merge or replace"),
    "a promise that objects cannot keep": ("- console: {}", "- iceberg: {table: lake.a.b, mode: replace_object, upsert: append}", "content.yaml:8:14  sinks[1].iceberg", "write upsert: auto"),
    "objects without their url": ("  sql:\n    url: ${URL}\n    table: cms.content\n    cursor: seq\nsinks:\n  - console: {}", '  objects: {url: "s3://b/", metadata: [etag]}\nsinks:\n  - iceberg: {table: lake.a.b, mode: replace_object}', "content.yaml:5:3  sinks", "sinks[1].iceberg.mode: replace_object finds an object's rows by its url; write url among source.objects.metadata"),
    "nobody removes rows": ("  sql:\n    url: ${URL}\n    table: cms.content\n    cursor: seq\nsinks:\n  - console: {}", '  objects: {url: "s3://b/", deleted: remove_rows}\nsinks:\n  - console: {}', "content.yaml:5:3  sinks", "write iceberg: {table: …, mode: replace_object}, or deleted: ignore"),
    "an empty name": ("pipeline: content", "pipeline: ''", "content.yaml:1:11  pipeline", "empty; write for example pipeline: orders"),
    "a number for a name": ("pipeline: content", "pipeline: 7", "content.yaml:1:11  pipeline", "expected a text, found '7'"),
    "an alias in itself": ("cursor: seq", "cursor: seq\n    columns: &a [*a]", "content.yaml:7:14", "write the value out"),
    "a control character": ("cursor: seq", "cursor: \x01", "content.yaml:1:1", "plain UTF-8 text"),
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def problem(text: str | bytes, name: str = "content.yaml") -> str:
    Path(name).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(SettingsError) as raised:
        load_pipelines([Path(name)], ENVIRONMENT)
    assert raised.value.exit_code == 2
    assert "hunter2" not in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda name: name.replace(" ", "-"))
@pytest.mark.usefixtures("folder")
def test_a_mistake_is_reported_with_its_place_and_its_remedy(mistake: str) -> None:
    before, after, place, remedy = MISTAKES[mistake]
    assert before in GOOD
    report = problem(GOOD.replace(before, after))
    assert report.startswith(place)
    assert remedy in report
    assert len(report.splitlines()) == 1, "one mistake, one line"


@pytest.mark.usefixtures("folder")
def test_every_problem_of_every_file_is_reported_at_once() -> None:
    Path("one.yaml").write_text(GOOD.replace("cursor: seq", "cursr: seq\n    splits: -1"))
    Path("two.yaml").write_text(GOOD.replace("console", "consol").replace("pipeline: content", "pipeline: two"))
    with pytest.raises(SettingsError) as raised:
        load_pipelines([Path()], ENVIRONMENT)
    places = [(p.file, p.line, p.path) for p in raised.value.problems]
    assert places == [
        ("one.yaml", 6, "source.sql.cursr"),
        ("one.yaml", 7, "source.sql.splits"),
        ("two.yaml", 8, "sinks[1].consol"),
    ]


@pytest.mark.usefixtures("folder")
def test_an_empty_file_and_one_that_is_no_mapping_say_what_belongs_there() -> None:
    assert problem("").startswith("content.yaml:1:1  the file is empty; a pipeline has at least pipeline:")
    assert problem("# only a comment\n").startswith("content.yaml:1:1  the file is empty")
    assert problem("- a\n- b\n") == "content.yaml:1:1  expected settings, such as pipeline: …"


@pytest.mark.usefixtures("folder")
def test_a_missing_file_suggests_its_neighbour() -> None:
    Path("content.yaml").write_text(GOOD)
    with pytest.raises(SettingsError, match=r"contents.yaml  no such file; did you mean 'content.yaml'\?"):
        load_pipelines([Path("contents.yaml")], ENVIRONMENT)
    with pytest.raises(SettingsError, match="no such file; check the path"):
        load_pipelines([Path("nowhere/at.yaml")], ENVIRONMENT)


@pytest.mark.usefixtures("folder")
def test_a_folder_without_pipelines_says_so() -> None:
    Path("headwater.yaml").write_text("lake: {warehouse: x}")
    with pytest.raises(SettingsError, match="the folder holds no pipeline; write one"):
        load_pipelines([Path()], ENVIRONMENT)


@pytest.mark.usefixtures("folder")
def test_two_pipelines_of_one_name_are_refused_even_in_two_files() -> None:
    Path("a.yaml").write_text(GOOD)
    Path("b.yaml").write_text("# second\n" + GOOD)
    with pytest.raises(SettingsError, match=r"b.yaml:2:1  pipeline  a.yaml:1 has a pipeline 'content' too.*rename one"):
        load_pipelines([Path()], ENVIRONMENT)
    Path("a.yaml").write_text(GOOD + "---\n" + GOOD)
    with pytest.raises(SettingsError, match=r"a.yaml:10:1  pipeline  a.yaml:1 has"):
        load_pipelines([Path("a.yaml")], ENVIRONMENT)


@pytest.mark.usefixtures("folder")
def test_text_that_is_not_utf_8_is_refused_with_the_byte() -> None:
    report = problem(GOOD.replace("seq", "größe").encode("latin-1"))
    assert report == "content.yaml:6:15  byte 0xf6 is not UTF-8; save the file as UTF-8 text"


@pytest.mark.usefixtures("folder")
def test_a_secret_in_the_wrong_form_is_not_shown() -> None:
    assert "found" not in problem(GOOD.replace("${URL}", "[postgresql://u:hunter2@h/db]"))
    assert "****" in problem(
        GOOD.replace("splits", "").replace("cursor: seq", "cursor: seq\n    splits: postgresql://u:hunter2@h")
    )


@pytest.mark.usefixtures("folder")
def test_what_a_variable_put_into_a_wrong_value_is_not_shown() -> None:
    report = problem(GOOD.replace("cursor: seq", "cursor: seq\n    splits: ${URL}"))
    assert "found '${URL}'" in report
    assert "hunter2" not in problem(GOOD.replace("pipeline: content", "pipeline: content\nevery: ${URL}"))
    report = problem(GOOD.replace("console: {}", "iceberg: {table: '${URL}'}"))
    assert "'${URL}' is not a full table name" in report


def test_mistakes_in_headwater_yaml_are_reported_alike(folder: Path) -> None:
    (folder / "headwater.yaml").write_text("progres: 'memory:'\nlake:\n  warehose: x\nspark: {memory: lots}\n")
    with pytest.raises(SettingsError) as raised:
        load_project(folder, environment={})
    report = [f"{p.line}:{p.column} {p.path} {p.message}" for p in raised.value.problems]
    assert report == [
        "1:1 progres unknown setting; did you mean 'progress'?",
        "3:3 lake.warehose unknown setting; did you mean 'warehouse'?",
        "4:17 spark.memory not of the right form; write for example memory: 2g, found 'lots'",
    ]


def test_a_store_address_of_the_wrong_type_is_refused_without_showing_it(folder: Path) -> None:
    (folder / "headwater.yaml").write_text("progress: [memory:, {url: postgresql://u:hunter2@h/db}]\n")
    with pytest.raises(SettingsError, match=r"headwater.yaml:1:21  progress\[2\]  expected a text") as raised:
        load_project(folder, environment={})
    assert "hunter2" not in str(raised.value)


@pytest.mark.usefixtures("folder")
def test_objects_that_name_their_url_under_any_name_can_be_replaced() -> None:
    for metadata in ("", ", metadata: [row, url]", ", metadata: {url: source_file}"):
        source = f'pipeline: p\nsource:\n  objects: {{url: "s3://b/"{metadata}}}\n'
        Path("p.yaml").write_text(source + "sinks:\n  - iceberg: {table: lake.a.b, mode: replace_object}\n")
        (pipeline,) = load_pipelines([Path("p.yaml")], ENVIRONMENT)
        assert "url" in pipeline.settings.source.objects.metadata_columns
