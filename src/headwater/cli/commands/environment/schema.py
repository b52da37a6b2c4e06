"""`headwater schema`: the JSON Schema of the settings files."""

from __future__ import annotations

import enum
import json
from typing import Annotated

import typer

from headwater.cli.output import Output


class Subject(enum.StrEnum):
    """A settings file."""

    pipeline = "pipeline"
    project = "project"


def schema(
    out: Output,
    subject: Annotated[
        Subject,
        typer.Argument(metavar="[pipeline|project]", help="pipeline: a pipeline file. project: headwater.yaml."),
    ] = Subject.pipeline,
) -> None:
    """Print the JSON Schema of a settings file, for editors.

    Save it (headwater schema > pipeline.schema.json) and begin the pipeline file with the line
    "# yaml-language-server: $schema=pipeline.schema.json".
    """
    from headwater.config.load import json_schema

    schema_json = json_schema(subject.value)
    out.value(schema_json, json.dumps(schema_json, indent=2, ensure_ascii=False))
