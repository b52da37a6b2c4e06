"""The JSON Schema that editors use."""

from __future__ import annotations

import json

import pytest

from headwater.config.load import SUBJECTS, json_schema
from headwater.config.problems import every_setting
from headwater.config.settings import describe_fields


@pytest.mark.parametrize("subject", SUBJECTS)
def test_every_setting_has_a_description(subject: str) -> None:
    bare = [
        ".".join(path)
        for path, _, owner in every_setting(SUBJECTS[subject])
        if not describe_fields(owner).get(path[-1])
    ]
    assert not bare


@pytest.mark.parametrize("subject", SUBJECTS)
def test_the_schema_is_json_closed_to_unknown_names_and_described(subject: str) -> None:
    schema = json.loads(json.dumps(json_schema(subject)))
    for definition in (schema, *schema["$defs"].values()):
        assert definition["additionalProperties"] is False
        assert all("description" in field for field in definition["properties"].values())


def test_a_secret_is_for_writing_only() -> None:
    assert json_schema("pipeline")["$defs"]["SqlSourceSettings"]["properties"]["url"]["writeOnly"] is True
