"""Templates say what the how-to explains; what Connect has to say about them is asked in tests/cli/commands/environment/test_connect.py."""

from pathlib import Path

import pytest

from headwater.model.errors import InputError
from headwater.services.connect.templates import PostgresCapture, S3Target, postgres_template, s3_template

PAGE = Path(__file__).parents[3] / "docs/how-to/manage-connect.md"
CAPTURE = PostgresCapture(
    name="Burst Bank-1", database="bank", tables=["burst_bank.customer", "public.a"], host="h", port="1", user="u"
)
TARGET = S3Target(name="s", topics=["a.b", "shop.*"], bucket="lake", region="eu-central-1", endpoint="http://m:9000")


def test_names_are_made_of_the_connectors_name():
    config = postgres_template(CAPTURE)["config"]
    assert [config[key] for key in ("slot.name", "publication.name", "topic.prefix")] == ["burst_bank_1"] * 3
    assert config["table.include.list"] == "burst_bank.customer,public.a"
    assert "signal.data.collection" not in config


def test_no_secret_is_in_a_template():
    templates = [postgres_template(CAPTURE), s3_template(TARGET, "confluent"), s3_template(TARGET, "aiven")]
    secret = [
        value for one in templates for key, value in one["config"].items() if "password" in key or "access.key" in key
    ]
    assert secret == [
        "${POSTGRESQL_PASSWORD}",
        "${AWS_ACCESS_KEY_ID}",
        "${AWS_SECRET_ACCESS_KEY}",
        "${AWS_ACCESS_KEY_ID}",
        "${AWS_SECRET_ACCESS_KEY}",
    ]


def test_decimals_without_a_schema_are_texts():
    with_schemas = postgres_template(CAPTURE)["config"]
    without = postgres_template(PostgresCapture(**{**vars(CAPTURE), "schemas": False}))["config"]
    assert (with_schemas["decimal.handling.mode"], with_schemas["value.converter.schemas.enable"]) == (
        "precise",
        "true",
    )
    assert (without["decimal.handling.mode"], without["value.converter.schemas.enable"]) == ("string", "false")


@pytest.mark.parametrize("table", ["orders", "a.b.c", "", "public.a,public.b"])
def test_a_table_needs_its_schema(table):
    with pytest.raises(InputError, match=r"write schema\.table, for example public\.orders|names no table"):
        postgres_template(PostgresCapture(**{**vars(CAPTURE), "tables": [table]}))


@pytest.mark.parametrize("kind", ["confluent", "aiven"])
def test_topics_by_pattern_are_one_expression(kind):
    assert s3_template(TARGET, kind)["config"]["topics.regex"] == r"a\.b|shop\..*"
    plain = S3Target(**{**vars(TARGET), "topics": ["a.b", "c"]})
    assert s3_template(plain, kind)["config"]["topics"] == "a.b,c"


def test_the_page_explains_every_setting_of_the_postgres_template():
    text = PAGE.read_text()
    assert [key for key in postgres_template(CAPTURE)["config"] if f"`{key}`" not in text] == []
