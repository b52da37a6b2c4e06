"""Settings files that are right: what they mean."""

from __future__ import annotations

import datetime as dt
import pickle
from pathlib import Path

import pytest

from headwater.config.load import load_pipelines, load_project, project_folder
from headwater.config.pipeline import PipelineSettings, next_cron, parse_every
from headwater.model.errors import SettingsError

SECRET = "hunter2"  # noqa: S105 - the secret that must not show
URL = f"postgresql://reader:{SECRET}@db/shop"

CONTENT = """\
pipeline: content
every: 5s
source:
  sql:
    url: ${PG_URL}
    table: cms.content_notification_status
    cursor: seq
    start: -1
transform: SELECT *, upper(state) AS state_code FROM rows
sinks:
  - console: {}
  - iceberg: {table: lake.cms.content, mode: merge, key: [id]}
"""


def written(folder: Path, text: str, name: str = "content.yaml") -> Path:
    (folder / name).write_text(text)
    return folder / name


def settings_of(file: Path, environment: dict[str, str]) -> list[PipelineSettings]:
    return [pipeline.settings for pipeline in load_pipelines([file], environment)]


def test_the_pipeline_of_the_guide_is_read(tmp_path: Path) -> None:
    (content,) = settings_of(written(tmp_path, CONTENT), {"PG_URL": URL})
    assert content.pipeline == "content"
    assert content.source.sql is not None
    assert content.source.sql.url.reveal() == URL
    assert content.source.sql.start == -1
    assert [sink.kind for sink in content.sinks] == ["console", "iceberg"]
    assert content.lease == dt.timedelta(seconds=30)


def test_a_secret_prints_nowhere(tmp_path: Path) -> None:
    (content,) = settings_of(written(tmp_path, CONTENT), {"PG_URL": URL})
    shown = repr(content) + str(content) + content.model_dump_json() + repr(content.model_dump())
    assert SECRET not in shown


def test_options_that_are_passed_on_do_not_print_their_secrets(tmp_path: Path) -> None:
    written(tmp_path, "lake: {catalog: {type: rest, token: hunter2, s3.secret-access-key: hunter2}}", "headwater.yaml")
    project = load_project(tmp_path, environment={})
    assert project.lake.catalog["token"] == SECRET
    assert SECRET not in repr(project)
    assert "rest" in repr(project)


def test_variables_have_defaults_and_can_be_escaped(tmp_path: Path) -> None:
    text = CONTENT.replace("cms.content_notification_status", "${SCHEMA:-cms}.${TABLE:-a-b}").replace(
        "SELECT *,", "SELECT '$${x}',"
    )
    (content,) = settings_of(written(tmp_path, text), {"PG_URL": URL, "TABLE": "content", "SCHEMA": ""})
    assert content.source.sql is not None
    assert content.source.sql.table == "cms.content"
    assert content.transform == "SELECT '${x}', upper(state) AS state_code FROM rows"


def test_a_number_may_come_from_a_variable(tmp_path: Path) -> None:
    text = CONTENT.replace("start: -1", "max_rows: ${N}")
    (content,) = settings_of(written(tmp_path, text), {"PG_URL": URL, "N": "500"})
    assert content.source.sql is not None
    assert content.source.sql.max_rows == 500


def test_dates_and_words_stay_what_was_written(tmp_path: Path) -> None:
    for start in ("2026-01-31", "2026-01-31T12:00:00.000001+00:00", "no", "0190163d-8694-739b-aea5-966c26f8ad91"):
        (content,) = settings_of(written(tmp_path, CONTENT.replace("-1", start)), {"PG_URL": URL})
        assert content.source.sql is not None
        assert content.source.sql.start == start


def test_one_file_may_hold_several_pipelines_that_share_parts(tmp_path: Path) -> None:
    text = CONTENT + "---\n" + CONTENT.replace("pipeline: content", "pipeline: second") + "---\n"
    assert [p.pipeline for p in settings_of(written(tmp_path, text), {"PG_URL": URL})] == ["content", "second"]
    merged = """\
pipeline: shared
source: {sql: {url: &url "sqlite:///a.db", table: a, cursor: id}}
sinks:
  - files: &files {path: out, format: json}
  - files: {<<: *files, path: other}
"""
    (shared,) = settings_of(written(tmp_path, merged), {})
    assert [(s.files.path, s.files.format) for s in shared.sinks if s.files] == [("out", "json"), ("other", "json")]


def test_a_sink_s_name_alone_means_its_defaults(tmp_path: Path) -> None:
    (content,) = settings_of(written(tmp_path, CONTENT.replace("console: {}", "console:")), {"PG_URL": URL})
    assert content.sinks[0].console is not None


def test_a_folder_is_all_its_pipelines_without_headwater_yaml(tmp_path: Path) -> None:
    written(tmp_path, "spark: {master: 'local[1]'}", "headwater.yaml")
    written(tmp_path, CONTENT)
    written(tmp_path, CONTENT.replace("pipeline: content", "pipeline: b"), "b.yml")
    pipelines = load_pipelines([tmp_path], {"PG_URL": URL})
    assert [(f.settings.pipeline, f.file.name, f.folder) for f in pipelines] == [
        ("b", "b.yml", tmp_path),
        ("content", "content.yaml", tmp_path),
    ]


def test_the_project_stands_beside_the_first_pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "flows").mkdir()
    assert project_folder([Path("flows/content.yaml")]) == tmp_path / "flows"
    assert project_folder([Path("flows")]) == tmp_path / "flows"
    assert project_folder([]) == tmp_path


def test_a_flag_beats_the_environment_beats_the_file_beats_the_default(tmp_path: Path) -> None:
    assert load_project(tmp_path, environment={}).lake.warehouse == "./lake"
    written(tmp_path, "lake: {warehouse: ./file}", "headwater.yaml")
    assert load_project(tmp_path, environment={}).lake.warehouse == "./file"
    environment = {"HEADWATER_LAKE__WAREHOUSE": "./environment", "HEADWATER_JARS": "/jars"}
    assert load_project(tmp_path, environment=environment).lake.warehouse == "./environment"
    project = load_project(tmp_path, environment=environment, overrides={"lake.warehouse": "./flag"})
    assert project.lake.warehouse == "./flag"
    assert project.lake.name == "lake"


def test_progress_of_several_levels_may_come_from_the_environment(tmp_path: Path) -> None:
    project = load_project(tmp_path, environment={"HEADWATER_PROGRESS": f'["memory:", "{URL}"]'})
    assert isinstance(project.progress, list)
    assert [level.reveal() for level in project.progress] == ["memory:", URL]
    project = load_project(tmp_path, environment={"HEADWATER_PROGRESS": URL})
    assert SECRET not in repr(project)


def test_a_mistake_from_outside_the_file_names_the_variable_or_the_flag(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"HEADWATER_LAKE__WAREHOSE  lake.warehose  unknown setting; did you mean"):
        load_project(tmp_path, environment={"HEADWATER_LAKE__WAREHOSE": "x"})
    with pytest.raises(SettingsError, match=r"HEADWATER_PROGRES  progres  unknown setting; did you mean 'progress'"):
        load_project(tmp_path, environment={"HEADWATER_PROGRES": URL})
    with pytest.raises(SettingsError, match=r"--set spark.memory  spark.memory  not of the right form"):
        load_project(tmp_path, environment={}, overrides={"spark.memory": "lots"})


def test_what_a_flag_replaces_need_not_be_right_in_the_file(tmp_path: Path) -> None:
    written(tmp_path, "progress: ${UNSET}", "headwater.yaml")
    with pytest.raises(SettingsError, match="no variable UNSET"):
        load_project(tmp_path, environment={})
    project = load_project(tmp_path, environment={}, overrides={"progress": "memory:"})
    assert project.progress_levels[0].reveal() == "memory:"


def test_every_is_a_duration_or_a_cron_line_in_utc() -> None:
    assert parse_every("1h30m") == dt.timedelta(minutes=90)
    assert parse_every("250ms") == dt.timedelta(milliseconds=250)
    assert parse_every("*/5 * * * *") == "*/5 * * * *"
    noon = dt.datetime(2026, 3, 29, 12, 2, tzinfo=dt.UTC)
    assert next_cron("*/5 * * * *", noon) == noon.replace(minute=5)


def test_a_settings_error_crosses_a_process_border_with_its_text(tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as raised:
        load_pipelines([written(tmp_path, "pipelin: x")], {})
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)  # noqa: S301 - our own bytes
