"""Files of connectors: every shape that Connect takes, variables, references, and mistakes with their place."""

import json
from pathlib import Path

import pytest

from headwater.model.errors import SettingsError
from headwater.services.connect.connector import read_connectors

FLAT = {"name": "shop", "connector.class": "Shop", "tasks.max": "1"}


def read(folder: Path, document: object, environment: dict[str, str] | None = None):
    text = document if isinstance(document, str) else json.dumps(document, indent=2)
    (folder / "shop.json").write_text(text)
    return read_connectors([folder / "shop.json"], environment or {})


@pytest.mark.parametrize(
    "document",
    [
        FLAT,
        {"name": "shop", "config": {"connector.class": "Shop", "tasks.max": "1"}},
        {"config": FLAT},
        {"name": "shop", "config": FLAT, "tasks": [{"connector": "shop", "task": 0}], "type": "source"},
        [FLAT],
        {"name": "shop", "config": {"connector.class": "Shop", "tasks.max": 1}},
    ],
)
def test_every_shape_is_the_same_connector(tmp_path, document):
    (connector,) = read(tmp_path, document)
    assert (connector.name, connector.connector_class, dict(connector.config)) == ("shop", "Shop", FLAT)


def test_several_connectors_stand_in_one_file_or_in_many(tmp_path):
    (tmp_path / "more.json").write_text(json.dumps({**FLAT, "name": "other"}))
    read(tmp_path, [FLAT, {**FLAT, "name": "second"}])
    connectors = read_connectors([tmp_path / "shop.json", tmp_path / "more.json"])
    assert [connector.name for connector in connectors] == ["shop", "second", "other"]


def test_values_are_texts_as_they_are_written(tmp_path):
    (connector,) = read(tmp_path, '{"name": "s", "connector.class": "S", "a": true, "b": 1.50, "c": 1e3, "d": false}')
    assert {key: connector.config[key] for key in "abcd"} == {"a": "true", "b": "1.50", "c": "1e3", "d": "false"}


def test_variables_are_replaced_and_references_are_left_to_the_worker(tmp_path):
    written = {
        "password": "${PG_PASSWORD}",
        "url": "jdbc://${PG_HOST:-localhost}:${PG_PORT:-5432}/x",
        "file": "${file:/run/secrets/pg.properties:password}",
        "env": "${env:PG_PASSWORD}",
        "secret": "${secrets:shop/pg:password}",
        "table": "kafka_$${topic}",
        "replacement": "$1-$2",
    }
    (connector,) = read(tmp_path, {**FLAT, **written}, {"PG_PASSWORD": "geheim", "PG_PORT": "6543"})
    assert {key: connector.config[key] for key in written} == {
        **written,
        "password": "geheim",
        "url": "jdbc://localhost:6543/x",
        "table": "kafka_${topic}",
    }
    assert {key: connector.written[key] for key in written} == written
    assert "geheim" not in repr(connector)


@pytest.mark.parametrize(
    ("document", "place", "said"),
    [
        ("{", "shop.json:1:2", "not valid JSON"),
        ('{"name": "s",\n "name": "t", "connector.class": "S"}', "shop.json:1:2  name", "written twice"),
        ("[]", "shop.json", "the list is empty"),
        ("7", "shop.json", 'expected a connector: {"name": …, "config": {…}}'),
        ([FLAT, "x"], "[2]", "expected a connector"),
        ({"connector.class": "S"}, "name", 'write "name": "shop"'),
        ({"name": " ", "connector.class": "S"}, "shop.json:2:3  name", "a connector needs a name"),
        ({"name": "s", "config": {"a": "b"}}, "connector.class", "see headwater connect plugins"),
        ({"name": "s", "config": {**FLAT, "name": "t"}}, "config.name", "the name above is 's'"),
        ({"name": "s", "config": FLAT | {"name": "s"}, "slot.name": "x"}, "slot.name", "write settings inside config"),
        ({**FLAT, "a": None}, "shop.json:5:3  a", "null is not allowed"),
        ({**FLAT, "a": ["b", "c"]}, "shop.json:5:3  a", 'a list is written as "a,b"'),
        ({**FLAT, "a": "${NOT_SET}"}, "shop.json:5:3  a", "the environment has no variable NOT_SET"),
        ({**FLAT, "a": "${topic}"}, "a", "write $${topic} to pass ${topic} to the connector"),
        ({**FLAT, "a": "${"}, "a", "write $${ for a plain ${"),
        ([FLAT, FLAT], "name", "has a connector 'shop' too"),
    ],
)
def test_mistakes_are_told_with_their_place(tmp_path, document, place, said):
    with pytest.raises(SettingsError) as caught:
        read(tmp_path, document)
    assert place in str(caught.value)
    assert said in str(caught.value)
    assert caught.value.exit_code == 2


def test_all_mistakes_of_all_files_come_at_once(tmp_path):
    (tmp_path / "latin.json").write_bytes(b'{"name": "\xe9"}')
    with pytest.raises(SettingsError) as caught:
        read_connectors([tmp_path / "none.json", tmp_path / "latin.json"])
    assert [problem.message for problem in caught.value.problems] == [
        "cannot be read (no such file or directory); check the path",
        "not UTF-8; save the file as UTF-8 text",
    ]


def test_a_mistake_in_a_list_is_placed_in_the_connector_that_has_it(tmp_path):
    with pytest.raises(SettingsError) as caught:
        read(tmp_path, [FLAT, {**FLAT, "name": "other", "tasks.max": None}])
    (problem,) = caught.value.problems
    assert (problem.line, problem.column, problem.path) == (10, 5, "[2].tasks.max")
