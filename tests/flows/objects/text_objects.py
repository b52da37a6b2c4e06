"""A folder of text objects, and a pipeline that lands them in files. No JVM."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.world import World


class TextObjects(World):
    """An object's one row says which object and which version it is."""

    def __init__(
        self, folder: Path, *, name: str = "objects", store: str = "sqlite:///progress.db", **source: Any
    ) -> None:
        self._objects = folder / f"in_{name}"
        self._objects.mkdir()
        settings = {"url": f"./in_{name}", "format": "text", "max_objects": 7, "metadata": [], **source}
        sinks = [{"files": {"path": f"./out_{name}", "format": "json"}}]
        super().__init__(folder, {"objects": settings}, sinks, name=name, store=store)

    def put(self, keys: Sequence[str], content: str = "first") -> None:
        for key in keys:
            temporary = self.folder / f".{self.name}_{key}"
            temporary.write_text(f"{key} {content}\n")
            temporary.replace(self._objects / key)

    def landed(self) -> Counter[str]:
        return Counter(row["value"] for row in self.published(f"out_{self.name}"))
