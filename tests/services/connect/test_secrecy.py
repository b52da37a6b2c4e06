"""No secret of a connector is shown: by its name, by what its class says, and in what the worker repeats (G11)."""

import pytest

from headwater.services.connect.apply import differences
from headwater.services.connect.connector import Connector, display, is_secret, mask_values, secret_values


@pytest.mark.parametrize(
    "key",
    [
        "database.password", "connection.password", "aws.secret.access.key", "aws.access.key.id", "sasl.jaas.config",
        "ssl.keystore.key", "s3.sse.customer.key", "value.converter.basic.auth.user.info", "api.key", "auth_token",
        "ssl.key.passphrase", "database.history.consumer.sasl.jaas.config", "my.pwd", "azure.sas",
    ],
)  # fmt: skip
def test_names_of_secrets_are_known(key):
    assert is_secret(key)
    assert display(key, "geheim") == "****"
    assert display(key, "") == ""


@pytest.mark.parametrize(
    "key",
    [
        "key.converter", "value.converter", "message.key.columns", "store.kafka.keys", "key.converter.schemas.enable",
        "s3.credentials.provider.class", "database.hostname", "topic.prefix", "keys.format.class", "slot.name",
    ],
)  # fmt: skip
def test_other_settings_are_shown(key):
    assert not is_secret(key)
    assert display(key, "plain") == "plain"


def test_where_a_secret_is_may_be_shown_and_the_secret_may_not():
    assert display("database.password", "${file:/run/pg:password}") == "${file:/run/pg:password}"
    assert display("database.password", "${PG_PASSWORD}") == "${PG_PASSWORD}"
    assert display("database.password", "${PG_PASSWORD:-geheim}") == "****"
    assert display("database.password", "x${PG_PASSWORD}") == "****"
    assert display("odd.name", "geheim", {"odd.name"}) == "****"
    assert display("connection.url", "jdbc:postgresql://u:geheim@h/d") == "jdbc:postgresql://u:****@h/d"


def test_messages_are_shown_without_the_values_of_secrets():
    values = secret_values(
        {"database.password": "geheim", "odd": "verborgen", "user": "anna", "p.password": ""}, ["odd"]
    )
    assert values == {"geheim", "verborgen"}
    said = mask_values(values, "Invalid value geheim (verborgen) for user anna at http://u:pw@h/")
    assert said == "Invalid value **** (****) for user anna at http://u:****@h/"


def test_differences_show_keys_and_no_secrets():
    written = {"host": "new", "database.password": "${PG}", "token": "geheim-neu", "port": "${PORT:-1}", "same": "s"}
    config = {**written, "database.password": "geheim-2", "port": "5432"}
    current = {"host": "old", "database.password": "geheim-1", "gone": "x", "port": "1", "same": "s", "name": "shop"}
    lines = differences(Connector("shop", {**config, "name": "shop"}, {**written, "name": "shop"}), current)
    assert [(each.key, each.before, each.after) for each in lines] == [
        ("database.password", "****", "${PG}"),
        ("gone", "x", None),
        ("host", "old", "new"),
        ("port", "****", "${PORT:-1}"),
        ("token", None, "****"),
    ]
