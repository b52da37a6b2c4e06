"""Sinks are opened by what their settings say."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from headwater.config.pipeline import SinkSettings
from headwater.sinks.open import SinkContext, open_sink


@pytest.mark.parametrize(
    ("kind", "options"), [("console", {}), ("files", {"path": "out"}), ("iceberg", {"table": "lake.shop.{stream}"})]
)
def test_a_sink_is_named_by_its_position_and_kind(kind: str, options: dict[str, str], tmp_path: Path) -> None:
    sink = open_sink(SinkSettings.model_validate({kind: options}), 2, SinkContext(tmp_path, io.StringIO()))
    assert sink.id == f"2:{kind}"
    sink.close()
