"""Settings of Kafka's clients in librdkafka's words, and what of them is never shown (G11)."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from pydantic import ValidationError

from headwater.config.sources.kafka import KafkaClientSettings, client_options

SECURE = {
    "brokers": "a:1,b:2",
    "security": {
        "tls": {"ca": "ca.pem", "certificate": "me.pem", "key": "me.key", "key_password": "kpw"},
        "mechanism": "SCRAM-SHA-512",
        "username": "me",
        "password": "pw-of-me",
    },
    "options": {"client.id": "x", "ssl.engine.location": "PEM-TEXT"},
}


def test_settings_are_told_to_librdkafka_in_its_words():
    options = client_options(KafkaClientSettings.model_validate(SECURE), Path("/etc/kafka")).reveal(group_id="g")
    assert options == {
        "bootstrap.servers": "a:1,b:2",
        "security.protocol": "sasl_ssl",
        "log_level": 0,
        "sasl.mechanisms": "SCRAM-SHA-512",
        "sasl.username": "me",
        "sasl.password": "pw-of-me",
        "ssl.ca.location": "/etc/kafka/ca.pem",
        "ssl.certificate.location": "/etc/kafka/me.pem",
        "ssl.key.location": "/etc/kafka/me.key",
        "ssl.key.password": "kpw",
        "client.id": "x",
        "ssl.engine.location": "PEM-TEXT",
        "group.id": "g",
    }


def test_no_secret_is_shown_by_settings_options_or_what_is_sent_to_tasks():
    settings = KafkaClientSettings.model_validate(SECURE)
    options = pickle.loads(pickle.dumps(client_options(settings, Path())))  # noqa: S301 - as Spark does
    shown = f"{settings!r} {settings} {options!r} {options}"
    assert not [secret for secret in ("pw-of-me", "kpw", "PEM-TEXT") if secret in shown]
    assert hash(options) == hash(client_options(settings, Path()))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"security": {"mechanism": "PLAIN", "username": "me"}}, "belong together"),
        ({"security": {"tls": {"certificate": "x"}}}, "certificate and key belong together"),
        ({"options": {"sasl.password": "x"}}, "security.password"),
        ({"options": {"metadata.broker.list": "x"}}, "brokers"),
        ({"brokers": ""}, "at least 1"),
    ],
)
def test_halves_and_repetitions_are_refused(wrong: dict, message: str):
    with pytest.raises(ValidationError, match=message):
        KafkaClientSettings.model_validate({"brokers": "a:1", **wrong})
