"""The client: refusals become errors of ours, and a cluster that is busy is asked again."""

import base64
import socket

import pytest

from headwater.model.errors import EnvironmentFault, InputError
from headwater.model.secret import Secret
from headwater.services.connect.client import ConnectClient
from headwater.services.stack.service import free_port
from tests.services.connect.proxy import proxy

NOWHERE = "http://127.0.0.1:1"
BUSY = 409, b'{"error_code":409,"message":"Cannot complete request momentarily due to stale configuration"}'


def test_a_worker_that_is_not_there_is_told_with_the_ways_to_one():
    port = free_port()
    with pytest.raises(EnvironmentFault) as caught:
        ConnectClient(f"http://127.0.0.1:{port}").names()
    assert str(caught.value) == (
        f"no Kafka Connect worker answers at http://127.0.0.1:{port}: Connection refused\n"
        "  → start it (on this machine: headwater stack up connect), or name another with --url"
    )
    assert caught.value.exit_code == 3


def test_a_worker_that_keeps_silent_is_told():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(EnvironmentFault, match="timeout"):
            ConnectClient(f"http://127.0.0.1:{port}", answer_seconds=0.1).names()


@pytest.mark.parametrize("url", ["localhost:8083", "http://[", "ftp://x", "http://h:port"])
def test_what_is_no_address_is_told(url):
    with pytest.raises(InputError, match="is not a valid address"):
        ConnectClient(url).names()


def test_a_password_in_the_address_is_used_and_never_shown():
    with proxy(NOWHERE, (200, b"[]"), (403, b"{}")) as (url, seen):
        client = ConnectClient(url.replace("://", "://anna:geheim@"))
        client.names()
        assert seen == ["GET /connectors Basic YW5uYTpnZWhlaW0="]
        assert "geheim" not in client.url
        with pytest.raises(EnvironmentFault, match=r"anna:\*\*\*\*@.* refuses the login: 403 Forbidden"):
            client.names()


def test_a_login_in_the_address_may_be_escaped():
    with proxy(NOWHERE, (200, b"[]")) as (url, seen):
        ConnectClient(url.replace("://", "://anna:ge%40h%C3%A9im@")).names()
    assert seen == [f"GET /connectors Basic {base64.b64encode('anna:ge@héim'.encode()).decode()}"]


def test_an_address_may_have_a_path():
    with proxy(NOWHERE, (200, b"[]")) as (url, seen):
        ConnectClient(f"{url}/connect/").names()
    assert seen == ["GET /connect/connectors"]


def test_a_worker_elsewhere_is_asked_through_the_proxy_and_one_on_this_machine_is_not(monkeypatch):
    with proxy(NOWHERE, (200, b"[]"), (200, b"[]")) as (url, seen):
        monkeypatch.setenv("http_proxy", url)
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        ConnectClient("http://worker.invalid:8083").names()
        with pytest.raises(EnvironmentFault, match="Connection refused"):
            ConnectClient(f"http://127.0.0.1:{free_port()}").names()
        monkeypatch.setenv("no_proxy", "worker.invalid")
        with pytest.raises(EnvironmentFault, match=r"no Kafka Connect worker answers at http://worker\.invalid:8083"):
            ConnectClient("http://worker.invalid:8083").names()
    assert seen == ["GET http://worker.invalid:8083/connectors"]


def test_settings_have_a_login_too():
    with proxy(NOWHERE, (200, b"[]")) as (url, seen):
        ConnectClient(url, "anna", Secret("geheim")).names()
    assert seen == ["GET /connectors Basic YW5uYTpnZWhlaW0="]


@pytest.mark.parametrize(
    ("answer", "kind", "said"),
    [
        ((401, b""), EnvironmentFault, "refuses the login: 401 Unauthorized"),
        ((500, b'{"error_code":500,"message":"geheim is wrong"}'), EnvironmentFault, r"500 \*\*\*\* is wrong"),
        ((400, b'{"error_code":400,"message":"bad geheim"}'), InputError, r"bad \*\*\*\*"),
        ((404, b"<html>"), EnvironmentFault, r"is not a Kafka Connect worker \(status 404\)"),
        ((200, b"<html>"), EnvironmentFault, r"is not a Kafka Connect worker \(status 200\)"),
        ((502, b"Bad gateway"), EnvironmentFault, r"is not a Kafka Connect worker \(status 502\)"),
    ],
)
def test_refusals_are_told_without_secrets(answer, kind, said):
    with proxy(NOWHERE, answer) as (url, _):
        client = ConnectClient(url)
        client.hide({"geheim"})
        with pytest.raises(kind, match=said):
            client.names()


def test_a_cluster_that_shares_out_its_work_is_asked_again(connect: str):
    with proxy(connect, BUSY, BUSY) as (url, seen):
        client = ConnectClient(url)
        with pytest.raises(InputError, match=r"not-there not found"):
            client.delete("not-there")
    assert seen == ["DELETE /connectors/not-there"] * 3


def test_patience_with_a_busy_cluster_ends():
    with proxy(NOWHERE, *[BUSY] * 50) as (url, seen):
        with pytest.raises(EnvironmentFault, match=r"still busy after 0\.5 s: Cannot complete request momentarily"):
            ConnectClient(url, rebalance_seconds=0.5).put("x", {})
        assert len(seen) > 1


def test_names_are_nothing_but_texts(connect: str):
    client = ConnectClient(connect)
    for name in ("a b", "a?b=c", "a#b", "é日", "a+b&c", "~x", "..x"):
        assert client.config(name) is None
        assert client.state(name) is None


@pytest.mark.parametrize("name", ["a/b", "../connector-plugins", "..", "a%2Fb", "a;b", "a\\b", "a\nb", ""])
def test_names_that_a_worker_cannot_be_asked_for_are_refused_before(name):
    with pytest.raises(InputError, match="cannot be the name of a connector"):
        ConnectClient(NOWHERE).state(name)


def test_a_worker_that_is_too_old_to_know_offsets_says_so_with_none():
    with proxy(NOWHERE, (404, b'{"error_code":404,"message":"HTTP 404 Not Found"}')) as (url, _):
        assert ConnectClient(url).offsets("x") is None
