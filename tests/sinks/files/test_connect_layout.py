"""Messages of Kafka as files in the layout of Connect's S3 sinks: exact lines, names by offset, nothing twice."""

import json
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import fs

from headwater.config.project import S3Settings
from headwater.config.settings import SecretText
from headwater.config.sinks.files import FilesSinkSettings
from headwater.model.errors import (
    LeaseLost,
    PublishConflict,
    SchemaRefused,
    SettingsError,
    SinkUnreachable,
    ValueNotKept,
)
from headwater.model.landing import Landing
from headwater.model.position.marks import OffsetsMark
from headwater.model.position.window import Window
from headwater.sinks.files import FilesSink, MessageFilesSink, open_files
from headwater.storage.destination import Destination, open_destination
from headwater.testing.memory_rows import MemoryRejects, attempt_at, memory_rows, spark_rows, table_of, window_up_to
from tests.support.stack import S3ForTests
from tests.support.wait import wait_until

HEADERS = pa.list_(
    pa.field("element", pa.struct([pa.field("name", pa.string(), nullable=False), pa.field("value", pa.binary())]))
)


def messages(*values, partition=0, first=0, keys=None, headers=None, kind=None) -> pa.Table:
    """Messages as the kafka source gives them, from offset `first` on."""
    count = len(values)
    return pa.table(
        {
            "value": pa.array(values, kind or pa.string()),
            "kafka_partition": pa.array([partition] * count, pa.int32()),
            "kafka_offset": pa.array(range(first, first + count), pa.int64()),
            "kafka_timestamp": pa.array([1_767_225_600_123_000] * count, pa.timestamp("us", "UTC")),
            "kafka_key": pa.array(keys or [None] * count, pa.string()),
            "kafka_headers": pa.array(headers or [[]] * count, HEADERS),
        }
    )


def window(start: dict[int, int], end: dict[int, int]) -> Window:
    return Window(OffsetsMark({"orders": start}), OffsetsMark({"orders": end}))


def sink(folder: Path, **settings) -> MessageFilesSink:
    opened = open_files(FilesSinkSettings(path="out", layout="connect", **settings), "1:files", folder, S3Settings())
    assert isinstance(opened, MessageFilesSink)
    return opened


def land(target: MessageFilesSink, *tables: pa.Table, at: Window | None = None, **attempt):
    return target.land(attempt_at(at or window({0: 0}, {0: 100}), **attempt), memory_rows("orders", tables))


def files(folder: Path) -> dict[str, bytes]:
    files = (path for path in (folder / "out").rglob("*") if path.is_file())
    return {str(path.relative_to(folder / "out")): path.read_bytes() for path in sorted(files)}


def test_a_line_holds_the_whole_message_as_aivens_sink_writes_it(tmp_path):
    headers = [[{"name": "h", "value": b"x"}, {"name": "h", "value": None}, {"name": "raw", "value": b"\xff\x00"}]]
    landing = land(sink(tmp_path), messages('{"a": 1.50}', first=42, keys=['{"id":7}'], headers=headers))
    assert (landing.rows, landing.proof["files"]) == (1, 1)
    (content,) = files(tmp_path).values()
    assert content == (
        b'{"key":{"id":7},"value":{"a": 1.50},"offset":42,"partition":0,"timestamp":"2026-01-01T00:00:00.123Z",'
        b'"headers":[{"key":"h","value":"x"},{"key":"h","value":null},{"key":"raw","base64":"/wA="}]}\n'
    )


def test_a_value_alone_is_kept_byte_for_byte_as_confluents_sink_writes_it(tmp_path):
    values = ['{"b" : 1e400,  "a":"\\u00e9"}', "no JSON at all ✓", "[1,2]"]
    land(sink(tmp_path, fields="value"), messages(*values))
    assert files(tmp_path) == {
        "orders/partition=0/orders+0+0000000000.json": "".join(f"{value}\n" for value in values).encode()
    }


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("plain text", '"plain text"'),
        ('say "hi"\n', '"say \\"hi\\"\\n"'),
        ("", '""'),
        ('{\r\n "a": "\\n"\n}', '{   "a": "\\n" }'),
        ("NaN", '"NaN"'),
        ('{"a":NaN}', '"{\\"a\\":NaN}"'),
        ('{"a":1}{"b":2}', '"{\\"a\\":1}{\\"b\\":2}"'),
        ("12345678901234567890.10", "12345678901234567890.10"),
        ("null", "null"),
        (None, "null"),
        ('{"a":', '"{\\"a\\":"'),
        ("[" * 100_000, json.dumps("[" * 100_000)),
    ],
)
def test_what_is_json_stays_as_it_is_and_other_text_becomes_a_json_text(tmp_path, value, expected):
    land(sink(tmp_path), messages('{"before":0}', value, '{"after":0}'))
    (content,) = files(tmp_path).values()
    first, line, last, end = content.decode().split("\n")
    assert line.startswith(f'{{"key":null,"value":{expected},"offset":1,"partition":0,')
    json.loads(line)
    assert (json.loads(first)["value"], json.loads(last)["value"], end) == ({"before": 0}, {"after": 0}, "")


def test_files_are_cut_by_offsets_of_the_window_and_named_by_the_first(tmp_path):
    target = sink(tmp_path, fields="value", file_offsets=3)
    tables = [
        messages(*"abcd", first=10),
        messages(*"efg", first=14),
        messages(*"xy", partition=1, first=10_000_000_000),
    ]
    land(target, *tables, at=window({0: 10, 1: 10_000_000_000}, {0: 17, 1: 10_000_000_002}))
    assert files(tmp_path) == {
        "orders/partition=0/orders+0+0000000010.json": b"a\nb\nc\n",
        "orders/partition=0/orders+0+0000000013.json": b"d\ne\nf\n",
        "orders/partition=0/orders+0+0000000016.json": b"g\n",
        "orders/partition=1/orders+1+10000000000.json": b"x\ny\n",
    }


def test_offsets_without_a_message_leave_names_and_cuts_as_they_are(tmp_path):
    table = messages(*"abcdef", first=10).filter([False, True, False, False, False, True])
    land(sink(tmp_path, fields="value", file_offsets=2), table, at=window({0: 10}, {0: 16}))
    assert files(tmp_path) == {
        "orders/partition=0/orders+0+0000000010.json": b"b\n",
        "orders/partition=0/orders+0+0000000014.json": b"f\n",
    }


@pytest.mark.parametrize("cuts", [[6], [1, 5], [2, 2, 2], [1, 1, 1, 1, 1, 1]])
def test_the_same_window_gives_the_same_files_however_it_is_split(tmp_path, cuts):
    """G2, G5: another machine has other cores, and so other splits."""
    everything, at = messages(*"abcdef", first=7), window({0: 7}, {0: 13})
    land(sink(tmp_path, file_offsets=4), everything, at=at)
    before = written(tmp_path)
    parts, begin = [], 0
    for size in cuts:
        parts.append(everything.slice(begin, size))
        begin += size
    land(sink(tmp_path, file_offsets=4), *parts, at=at, run="run-2", epoch=2)
    assert written(tmp_path) == before, "not even the time has changed"


def written(folder):
    """What a write would change of the files; a read changes the time of their last access."""
    stats = {path: path.stat() for path in folder.rglob("*.json")}
    return {path: (stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns) for path, stat in stats.items()}


def test_tombstones_are_lines_with_null_beside_their_key_and_no_lines_without_one(tmp_path):
    table = messages("{}", None, keys=["1", "1"])
    assert land(sink(tmp_path / "all"), table).rows == 2
    assert land(sink(tmp_path / "value", fields="value"), table).rows == 1
    (content,) = files(tmp_path / "all").values()
    assert [json.loads(line)["value"] for line in content.splitlines()] == [{}, None]
    assert list(files(tmp_path / "value").values()) == [b"{}\n"]


def test_lines_hold_only_what_the_source_gives(tmp_path):
    table = messages("{}").select(["value", "kafka_offset", "kafka_partition"])
    land(sink(tmp_path), table)
    assert list(files(tmp_path).values()) == [b'{"value":{},"offset":0,"partition":0}\n']


@pytest.mark.parametrize(
    ("fields", "value", "reason"),
    [
        ("value", b"two\nlines", "not JSON and spans several lines"),
        ("value", b"", "the value is empty"),
        ("all", b"\xffx", "neither JSON nor text: byte 0 is not UTF-8"),
    ],
)
def test_what_has_no_line_is_set_aside_and_the_rest_lands(tmp_path, fields, value, reason):
    """G8"""
    rejects = MemoryRejects()
    table = messages(b'{"n":1}', value, b'{"n":3}', kind=pa.binary())
    target = sink(tmp_path, fields=fields)
    attempt = attempt_at(window({0: 0}, {0: 3}), rejects=rejects)
    rows = memory_rows("orders", (table,), key=("kafka_partition", "kafka_offset"))
    assert target.land(attempt, rows).rows == 2
    (reject,) = rejects.rejects
    assert reason in reject.reason
    assert json.loads(str(reject.location["row"])) == {"kafka_partition": 0, "kafka_offset": 1}
    assert b'{"n":1}' in next(iter(files(tmp_path).values()))
    with pytest.raises(ValueNotKept, match=reason):
        land(target, table)


def test_bytes_that_are_no_text_are_kept_as_a_line_of_their_own(tmp_path):
    land(sink(tmp_path, fields="value"), messages(b"\xff\x00", kind=pa.binary()))
    assert list(files(tmp_path).values()) == [b"\xff\x00\n"]


CRASH = """
import sys
from pathlib import Path
from headwater.model.faults import RehearsedFault
from tests.sinks.files.test_connect_layout import land, messages, sink
land(sink(Path(sys.argv[1]), file_offsets=2), messages(*"abcde"), faults=RehearsedFault(sys.argv[2], "kill", 1))
"""


@pytest.mark.parametrize("point", ["land.written", "land.published"])
def test_a_kill_is_repaired_by_landing_again(tmp_path, point):
    done = subprocess.run(
        [sys.executable, "-c", CRASH, str(tmp_path), point], check=False, cwd=Path(__file__).parents[3]
    )
    assert done.returncode == -signal.SIGKILL
    assert len(files(tmp_path)) == (3 if point == "land.published" else 0)
    target = sink(tmp_path, file_offsets=2)
    assert target.landed(attempt_at(window({0: 0}, {0: 100})), "orders") is None
    land(target, messages(*"abcde"), run="run-2", epoch=2)
    offsets = [json.loads(line)["offset"] for content in files(tmp_path).values() for line in content.splitlines()]
    assert offsets == [0, 1, 2, 3, 4]


def test_a_file_that_was_half_published_is_replaced(tmp_path):
    target = tmp_path / "out/orders/partition=0/orders+0+0000000000.json"
    target.parent.mkdir(parents=True)
    target.write_bytes(b"hal")
    land(sink(tmp_path, fields="value"), messages("whole"))
    assert files(tmp_path) == {"orders/partition=0/orders+0+0000000000.json": b"whole\n"}


def test_a_writer_that_lost_its_lease_puts_nothing(tmp_path):
    """G4"""

    def lost() -> None:
        raise LeaseLost("shop: taken over by epoch 2")

    with pytest.raises(LeaseLost):
        land(sink(tmp_path), messages("{}"), ensure_lease=lost)
    assert not (tmp_path / "out").exists()


def test_a_writer_that_wakes_up_after_a_rewind_replaces_nothing(tmp_path):
    """G4: the file was written again, from a longer window, while the writer slept behind its last look at the lease."""
    passed = []

    def meanwhile() -> None:
        if passed:
            raise LeaseLost("shop: taken over by epoch 2")
        passed.append(True)
        land(sink(tmp_path, fields="value"), messages(*"abcd"), at=window({0: 0}, {0: 4}), epoch=2)

    with pytest.raises(LeaseLost):
        land(sink(tmp_path, fields="value"), messages(*"ab"), at=window({0: 0}, {0: 2}), ensure_lease=meanwhile)
    assert files(tmp_path) == {"orders/partition=0/orders+0+0000000000.json": b"a\nb\nc\nd\n"}


def test_a_file_is_replaced_only_in_the_version_that_was_seen(tmp_path):
    assert replaced_in_turns(open_destination("out", tmp_path, S3Settings())) == b"third"
    assert [path.name for path in (tmp_path / "out").rglob("*") if path.is_file()] == ["x.json"]


def test_an_object_is_replaced_only_in_the_version_that_was_seen(s3: S3ForTests, bucket: str):
    assert replaced_in_turns(open_destination(f"s3://{bucket}/a", Path(), settings_of(s3))) == b"third"


def replaced_in_turns(destination: Destination) -> bytes | None:
    """Two writers see one version; the second of them is refused. The content in the end."""
    assert destination.read("b/x.json") is None
    assert destination.put_if_absent("b/x.json", b"first") is None
    assert destination.put_if_absent("b/x.json", b"first") is None
    version = destination.put_if_absent("b/x.json", b"second")
    assert version is not None
    destination.replace("b/x.json", b"third", version)
    with pytest.raises(PublishConflict, match=r"b/x\.json was changed by another writer"):
        destination.replace("b/x.json", b"second", version)
    assert destination.put_if_absent("b/x.json", b"third") is None
    return destination.read("b/x.json")


def test_a_replay_of_a_reject_replaces_no_file_that_begins_with_its_offset(tmp_path):
    target = sink(tmp_path, fields="value")
    land(target, messages(*"abc"))
    replay = replace(window({0: 3}, {0: 3}), part="replay-1")
    land(target, messages("a again"), at=replay)
    assert list(files(tmp_path)) == [
        f"orders/partition=0/orders+0+0000000000-{replay.id[:8]}.json",
        "orders/partition=0/orders+0+0000000000.json",
    ]
    assert files(tmp_path)["orders/partition=0/orders+0+0000000000.json"] == b"a\nb\nc\n"


def test_rows_that_are_no_messages_are_refused(tmp_path):
    with pytest.raises(SchemaRefused, match="these rows lack value, kafka_partition, kafka_offset"):
        sink(tmp_path).land(attempt_at(window_up_to(3)), memory_rows("orders", (table_of([1]),)))
    with pytest.raises(SchemaRefused, match="these rows lack offsets"):
        sink(tmp_path).land(attempt_at(window_up_to(3)), spark_rows(memory_rows("orders", (messages("{}"),))))


def test_a_path_that_cannot_be_a_folder_is_one_clear_sentence(tmp_path):
    (tmp_path / "out").write_text("a file")
    with pytest.raises(SinkUnreachable, match=r"cannot write to .*out: "):
        land(sink(tmp_path), messages("{}"))


def test_another_kind_of_store_is_refused_without_its_password():
    settings = FilesSinkSettings(path="ftp://user:geheim@host/x", layout="connect")
    with pytest.raises(SettingsError, match=r"ftp://user:\*\*\*\*@host/x is not the address") as caught:
        open_files(settings, "1:files", Path(), S3Settings())
    assert "geheim" not in str(caught.value)


def settings_of(s3: S3ForTests) -> S3Settings:
    return S3Settings(endpoint=s3.endpoint, region=s3.region, access_key=s3.access_key, secret_key=s3.secret_key)


def test_a_bucket_is_reached_by_the_projects_settings(s3: S3ForTests, bucket: str):
    path = f"s3://{bucket}/raw/topics"
    target = open_files(
        FilesSinkSettings(path=path, layout="connect", file_offsets=2), "1:files", Path(), settings_of(s3)
    )
    at = window({0: 0}, {0: 3})
    landing = target.land(attempt_at(at), memory_rows("orders", (messages("{}", "[]", "1"),)))
    assert landing.proof == {"published": f"{path}/orders", "files": 2}
    names = [f"{bucket}/raw/topics/orders/partition=0/orders+0+000000000{n}.json" for n in (0, 2)]
    before = [s3.files.get_file_info(name).mtime_ns for name in names]
    lines = b"".join(s3.files.open_input_stream(name).read() for name in names)
    assert [json.loads(line)["value"] for line in lines.splitlines()] == [{}, [], 1]
    wait_until(lambda: time.time_ns() > max(before) + 1_100_000_000)  # servers know whole seconds
    target.land(attempt_at(at, epoch=2), memory_rows("orders", (messages("{}", "[]", "1"),)))
    assert [s3.files.get_file_info(name).mtime_ns for name in names] == before, "what is the same is not written again"
    target.land(attempt_at(at, epoch=3), memory_rows("orders", (messages("{}", "[]", "other"),)))
    assert json.loads(s3.files.open_input_stream(names[1]).read())["value"] == "other"


def test_a_bucket_that_is_not_there_or_not_ours_is_one_clear_sentence(s3: S3ForTests, bucket: str):
    def to(path: str, **settings) -> None:
        changed = settings_of(s3).model_copy(update=settings)
        rows = memory_rows("orders", (messages("{}"),))
        sink = open_files(FilesSinkSettings(path=path, layout="connect"), "1:files", Path(), changed)
        sink.land(attempt_at(window({0: 0}, {0: 1})), rows)

    with pytest.raises(SinkUnreachable, match="cannot write to s3://nowhere-at-all/x: NoSuchBucket"):
        to("s3://nowhere-at-all/x")
    wrong = SecretText("geheim-und-falsch")
    with pytest.raises(SinkUnreachable, match=f"cannot write to s3://{bucket}/x: SignatureDoesNotMatch") as caught:
        to(f"s3://{bucket}/x", secret_key=wrong)
    assert "geheim" not in str(caught.value)
    with pytest.raises(SinkUnreachable, match="can be reached from here"):
        to(f"s3://{bucket}/x", endpoint="http://127.0.0.1:1")


@pytest.mark.parametrize("form", ["parquet", "json"])
def test_windows_land_in_a_bucket_by_the_same_settings(s3: S3ForTests, bucket: str, form: str):
    settings = FilesSinkSettings(path=f"s3://{bucket}/landed", format=form, s3=settings_of(s3))
    target = open_files(settings, "1:files", Path(), S3Settings())
    assert isinstance(target, FilesSink)
    at = attempt_at(window_up_to(10))
    assert target.landed(at, "orders") is None
    target.land(at, memory_rows("orders", (table_of([1, 2]),)))
    assert target.landed(at, "orders").rows == 2
    manifest = s3.files.open_input_stream(f"{bucket}/landed/orders/_manifests/{at.window.id}.json").read()
    assert json.loads(manifest)["rows"] == 2
    files = [f"{bucket}/landed/orders/data/{part['name']}" for part in json.loads(manifest)["files"]]
    assert [s3.files.get_file_info(name).size for name in files] == [
        part["bytes"] for part in json.loads(manifest)["files"]
    ]
    target.land(at, memory_rows("orders", (table_of([1, 2]),)))
    assert len(s3.files.get_file_info(fs.FileSelector(f"{bucket}/landed/orders/data"))) == 1, "nothing is written again"


def test_the_first_manifest_of_a_window_in_a_bucket_stays(s3: S3ForTests, bucket: str):
    """G2, G4: another writer publishes after the second one has written its files."""
    settings = FilesSinkSettings(path=f"s3://{bucket}/landed", s3=settings_of(s3))
    window = window_up_to(10)

    def land(rows: list[int], run: str, **attempt) -> Landing:
        sink = open_files(settings, "1:files", Path(), S3Settings())
        return sink.land(attempt_at(window, run=run, **attempt), memory_rows("orders", (table_of(rows),)))

    second = land([1, 2, 3], "second", ensure_lease=lambda: land([1, 2], "first"))
    assert (second.rows, second.proof["run"]) == (2, "first")


def test_a_file_that_is_not_finished_does_not_appear_in_a_bucket(s3: S3ForTests, bucket: str):
    destination = open_destination(f"s3://{bucket}/a", Path(), settings_of(s3))
    destination.create("half.json").write(b"half")
    complete = destination.create("whole.json")
    complete.write(b"whole")
    assert destination.finish(complete, "whole.json") == 5
    names = [file.base_name for file in s3.files.get_file_info(fs.FileSelector(f"{bucket}/a"))]
    assert names == ["whole.json"]
