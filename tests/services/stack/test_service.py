"""What holds for every server: ports, failures, logs."""

from __future__ import annotations

import socket

import pytest

from headwater.model.errors import EnvironmentFault
from headwater.services.stack.postgres import Postgres
from headwater.services.stack.s3 import S3
from headwater.services.stack.service import Service, free_port, is_free

pytestmark = pytest.mark.servers


def test_a_port_that_is_taken_is_named_before_anything_starts(tmp_path):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        service = Service(S3(may_build=False), tmp_path, ports={"http": port})
        with pytest.raises(EnvironmentFault, match=rf"s3: port {port} \(http\) is in use by another process"):
            service.start()
    assert service.process is None


def test_a_free_port_lies_below_those_of_outgoing_connections():
    ports = {free_port() for _ in range(50)}
    assert all(20_000 <= port <= 32_000 and is_free(port) for port in ports)
    assert len(ports) > 25


def test_a_server_that_ends_at_once_is_told_with_the_end_of_its_log(tmp_path):
    service = Service(Postgres({"shared_buffers": "lots"}), tmp_path / "postgres")
    try:
        with pytest.raises(EnvironmentFault) as failure:
            service.start()
        assert "postgres exited during its start" in failure.value.message
        assert 'invalid value for parameter "shared_buffers": "lots"' in failure.value.message
        assert str(service.log) in failure.value.hint
        assert service.state() == "down"
    finally:
        service.remove()


def test_a_server_that_says_nothing_is_given_up(tmp_path):
    service = Service(Postgres(), tmp_path / "postgres")
    service.launch()
    try:
        with socket.socket() as deaf:
            deaf.bind(("127.0.0.1", 0))
            deaf.listen()
            service.ports = {"sql": deaf.getsockname()[1]}
            with pytest.raises(EnvironmentFault, match="postgres did not answer within 1 s"):
                service.wait_until_ready(1)
    finally:
        service.stop()
        service.remove()
