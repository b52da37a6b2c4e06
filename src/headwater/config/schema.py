"""The JSON Schema of the settings files, so that editors complete and check them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from headwater.config.descriptions import describe_fields
from headwater.config.expected import every_setting
from headwater.config.frozen import Settings
from headwater.config.pipeline import PipelineSettings
from headwater.config.project import ProjectSettings

SUBJECTS: Mapping[str, type[Settings]] = {"pipeline": PipelineSettings, "project": ProjectSettings}
_TITLES = {"pipeline": "A Headwater pipeline", "project": "What Headwater pipelines share (headwater.yaml)"}


def json_schema(subject: str) -> dict[str, Any]:
    """The schema of a `pipeline` file or of the `project` file, with the descriptions that the docs have."""
    root = SUBJECTS[subject]
    schema = root.model_json_schema(mode="validation")
    definitions = {root.__name__: schema, **schema.get("$defs", {})}
    for model in _models(root):
        for name, text in describe_fields(model).items():
            if name in definitions[model.__name__]["properties"]:
                definitions[model.__name__]["properties"][name]["description"] = text
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": _TITLES[subject]}


def _models(root: type[Settings]) -> Iterator[type[Settings]]:
    yield root
    yield from {owner: None for _, _, owner in every_setting(root) if owner is not root}
