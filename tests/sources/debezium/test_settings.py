"""Settings that do not go together are told before anything runs."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from headwater.config.sources.kafka import DebeziumSettings, KafkaSourceSettings
from headwater.config.sources.objects import ObjectsSourceSettings

KAFKA = {"brokers": "b:1", "topics": "t"}
OBJECTS = {"url": "s3://b/p/"}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({**KAFKA, "debezium": {"key": ["id"]}}, "belongs to format: debezium"),
        ({**KAFKA, "format": "debezium", "schema": "a int, _op string"}, "two columns are called _op"),
        ({**KAFKA, "format": "debezium", "metadata": {"offset": "_position"}}, "two columns are called _position"),
        ({**KAFKA, "format": "debezium", "debezium": {"key": ["a", "a"]}}, "names each of its columns once"),
        ({**KAFKA, "format": "debezium", "debezium": {"times": "seconds"}}, "times"),
        ({**KAFKA, "format": "debezium", "debezium": {"unavailable": ""}}, "unavailable"),
        ({**OBJECTS, "debezium": {"key": ["id"]}}, "belongs to format: debezium"),
        ({**OBJECTS, "format": "debezium", "metadata": {"url": "_op"}}, "_op"),
        ({**OBJECTS, "format": "parquet", "schema": "a int"}, "schema is for json, csv and debezium"),
    ],
)
def test_what_does_not_go_together_is_refused(settings, said):
    with pytest.raises(ValidationError, match=said):
        (KafkaSourceSettings if "brokers" in settings else ObjectsSourceSettings).model_validate(settings)


def test_a_key_and_units_per_name():
    settings = DebeziumSettings.model_validate({"key": {"a": ["x"]}, "times": {"at": "millis"}})
    assert (settings.key_of("a"), settings.key_of("b")) == (("x",), ())
    assert (settings.of_column("at").times, settings.of_column("b").times) == ("millis", "micros")
