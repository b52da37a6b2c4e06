"""TLS and passwords on a real broker: let in, or told why not, and never with the password (G11)."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.model.errors import SourceUnreachable
from headwater.services.stack.kafka import Kafka
from headwater.services.stack.service import running
from tests.sources.kafka.poller import Poller, send
from tests.support.stack import kafka_at

pytestmark = pytest.mark.servers


def test_passwords_and_certificates_open_the_broker_and_wrong_ones_are_told_without_them(tmp_path: Path):
    users = {"alice": "alices-secret"}
    with running(Kafka(listeners=("sasl", "sasl_tls"), users=users), tmp_path / "broker") as broker:
        topic = kafka_at(broker.address["brokers"]).topic()
        send(broker.address["brokers"], topic, [b"x"])
        (tmp_path / "ca.pem").write_bytes(certificate(tmp_path / "broker").read_bytes())
        for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
            login = {"mechanism": mechanism, "username": "alice", "password": "alices-secret"}
            assert Poller(broker.address["sasl"], topic, security=login).values() == ["x"]
            tls = {**login, "tls": {"ca": "ca.pem"}}
            assert Poller(broker.address["sasl_tls"], topic, folder=tmp_path, security=tls).values() == ["x"]
        wrong = Poller(broker.address["sasl"], topic, timeout="5s", security={**login, "password": "another-secret"})
        with pytest.raises(SourceUnreachable, match="Authentication failed") as caught:
            wrong.look()
        assert "another-secret" not in f"{caught.value} {caught.value.hint} {wrong.settings!r}"


def certificate(folder: Path) -> Path:
    """The broker signs for itself."""
    return next(path for path in sorted(folder.rglob("*.pem")) if b"BEGIN CERTIFICATE" in path.read_bytes())
