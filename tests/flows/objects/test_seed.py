"""The bucket that Headwater was asked to watch: start, upload, see the content, stop, look at the bookmarks, start again."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.wait import wait_until

HEADWATER = Path(sys.executable).with_name("headwater")


class Watching:
    """A folder with a pipeline over a bucket, and the commands that a user types there. Without a PATH there is no Java."""

    def __init__(self, folder: Path, s3, bucket: str) -> None:
        self.folder, self.s3, self.bucket = folder, s3, bucket
        self.environment = {"PATH": "", "HOME": str(folder), "PYTHONUNBUFFERED": "1", **s3.environment}
        (folder / "watch.yaml").write_text(f"""
pipeline: watch
every: 300ms
source:
  objects: {{url: "s3://{bucket}/", format: json, schema: "id bigint, text string"}}
sinks:
  - console: {{format: json}}
""")

    def upload(self, key: str, *texts: str) -> None:
        with self.s3.files.open_output_stream(f"{self.bucket}/{key}") as file:
            for number, text in enumerate(texts):
                file.write(f"{json.dumps({'id': number, 'text': text})}\n".encode())

    @contextmanager
    def running(self) -> Iterator[subprocess.Popen[str]]:
        process = subprocess.Popen(
            [HEADWATER, "run", "watch.yaml"], cwd=self.folder, env=self.environment, text=True,
            stdout=(self.folder / "shown").open("a"), stderr=(self.folder / "said").open("a"),
        )  # fmt: skip
        try:
            yield process
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=30) == 0, (self.folder / "said").read_text()

    def shown(self) -> list[str]:
        """The texts that were printed, in their order."""
        lines = (self.folder / "shown").read_text().splitlines()
        return [json.loads(line)["text"] for line in lines if line.startswith("{")]

    def wait_until_shown(self, *texts: str) -> None:
        """Whatever is shown too often shows later than what is shown at all: so wait for the right end, then compare."""
        log = self.folder / "said"
        wait_until(lambda: sorted(self.shown()) == sorted(texts), 60, lambda: f"{self.shown()}\n{log.read_text()}")

    def command(self, *arguments: str) -> str:
        done = subprocess.run(
            [HEADWATER, *arguments], cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def watching(tmp_path, s3, bucket) -> Watching:
    (tmp_path / "shown").touch()
    return Watching(tmp_path, s3, bucket)


def test_the_walk_through_of_the_seed(watching):
    with watching.running():
        watching.upload("a.json", "one", "two")
        watching.upload("deep/er/b.json", "three")
        watching.wait_until_shown("one", "two", "three")
    listed = json.loads(watching.command("bookmarks", "list", "watch", "--json"))["bookmarks"]
    assert [(one["key"], one["state"]) for one in listed] == [("a.json", "landed"), ("deep/er/b.json", "landed")]
    watching.upload("a.json", "four")  # an update, while nobody looks
    watching.upload("c.json", "five")
    with watching.running():
        watching.wait_until_shown("one", "two", "three", "four", "five")
    assert json.loads(watching.command("bookmarks", "count", "watch", "--json"))["landed"]["objects"] == 3
    assert json.loads(watching.command("run", "watch.yaml", "--once", "--json"))["outcome"] == "nothing new"
    watching.wait_until_shown("one", "two", "three", "four", "five")


def test_bookmarks_are_shown_removed_exported_and_imported(watching, tmp_path_factory, s3, bucket):
    watching.upload("a b.json", "one")
    watching.upload("c.json", "two")
    watching.command("run", "watch.yaml", "--once")
    shown = json.loads(watching.command("bookmarks", "show", "watch", "a b.json", "--json"))
    assert (shown["state"], shown["tries"], shown["generation"]) == ("landed", 0, 1)
    watching.command("bookmarks", "export", "watch", "bookmarks.json")
    exported = json.loads((watching.folder / "bookmarks.json").read_text())
    assert exported == json.loads(watching.command("bookmarks", "export", "watch")) | {
        name: exported[name] for name in ("created_at", "updated_at")
    }
    assert [(one["topic"], one["partition"], one["offset"]) for one in exported["bookmarks"]] == [
        (bucket, "a b.json", 0),
        (bucket, "c.json", 0),
    ]

    elsewhere = Watching(tmp_path_factory.mktemp("elsewhere"), s3, bucket)
    (elsewhere.folder / "bookmarks.json").write_text((watching.folder / "bookmarks.json").read_text())
    watching.upload("c.json", "two, changed")
    done = json.loads(elsewhere.command("bookmarks", "import", "watch", "bookmarks.json", "--yes", "--json"))
    assert done == {"pipeline": "watch", "known": 1, "newer": 1, "missing": 0, "others": 0}
    assert "two, changed" in elsewhere.command("run", "watch.yaml", "--once")
    assert "two" not in elsewhere.command("run", "watch.yaml", "--once")

    elsewhere.command("bookmarks", "remove", "watch", "a b.json", "--yes")
    assert '"one"' in elsewhere.command("run", "watch.yaml", "--once")
    assert json.loads(elsewhere.command("run", "watch.yaml", "--once", "--json"))["outcome"] == "nothing new"


def test_another_tools_bookmarks_are_compared_by_time(watching, bucket):
    watching.upload("old.json", "old")
    watching.upload("new.json", "new")
    entry = {"topic": bucket, "offset": 0, "metadata": {}}
    bookmarks = [
        {**entry, "partition": "old.json", "timestamp": "2999-01-01T00:00:00.123456789Z"},
        {**entry, "partition": "new.json", "timestamp": "2001-01-01T00:00:00Z"},
        {**entry, "partition": "gone.json", "timestamp": "2999-01-01T00:00:00Z"},
        {**entry, "topic": "another", "partition": "old.json", "timestamp": "2999-01-01T00:00:00Z"},
    ]
    (watching.folder / "theirs.json").write_text(json.dumps({"version": "1.0", "bookmarks": bookmarks}))
    done = json.loads(watching.command("bookmarks", "import", "watch", "theirs.json", "--yes", "--json"))
    assert done == {"pipeline": "watch", "known": 1, "newer": 1, "missing": 1, "others": 1}
    shown = watching.command("run", "watch.yaml", "--once")
    assert '"new"' in shown
    assert '"old"' not in shown
