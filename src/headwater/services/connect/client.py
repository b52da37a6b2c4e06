"""Asks one Kafka Connect worker; its refusals become errors of ours."""

from __future__ import annotations

import http
import time
from collections.abc import Mapping, Sequence
from urllib.parse import quote, urlsplit

import httpx

from headwater.model.errors import EnvironmentFault, HeadwaterError, InputError, UnknownName
from headwater.model.marks import Json
from headwater.model.secret import Secret, masked
from headwater.services.connect.secrecy import without
from headwater.services.connect.state import ConnectorState, Plugin, Validation

_CONNECT_SECONDS = 5.0
_ANSWER_SECONDS = 100.0  # a connector that is asked to validate may wait for its database; Connect gives up after 90
_POLL_SECONDS = 0.3
_LOCAL = {"localhost", "127.0.0.1", "::1"}


class ConnectClient:
    """One worker. It passes on to the others of its cluster what they have to do."""

    def __init__(
        self,
        url: str,
        username: str | None = None,
        password: Secret | None = None,
        *,
        patience_seconds: float = 60.0,  # for a cluster that is busy sharing out its work
    ) -> None:
        self.url = masked(url)
        self._patience_seconds = patience_seconds
        self._hidden: set[str] = set()
        try:
            self._http = httpx.Client(
                base_url=url,
                auth=(username, password.reveal() if password else "") if username else None,
                timeout=httpx.Timeout(_ANSWER_SECONDS, connect=_CONNECT_SECONDS),
                trust_env=urlsplit(url).hostname not in _LOCAL,  # no proxy reaches this machine's own worker
            )
        except (httpx.InvalidURL, ValueError) as error:
            raise InputError(f"{self.url} is no address", hint="write for example http://localhost:8083") from error

    def close(self) -> None:
        self._http.close()

    def hide(self, values: set[str]) -> None:
        """Secrets that the worker may repeat in what it says; errors are shown without them (G11)."""
        self._hidden |= values

    def without_secrets(self, text: str) -> str:
        return without(self._hidden, text)

    def plugins(self) -> Sequence[Plugin]:
        found = self._get("/connector-plugins")
        return sorted((Plugin.from_json(each) for each in found), key=lambda plugin: plugin.name)

    def validate(self, kind: str, config: Mapping[str, str]) -> Validation:
        answer = self._ask("PUT", f"/connector-plugins/{quote(kind, safe='')}/config/validate", body=dict(config))
        return Validation.from_json(_json(answer))

    def names(self) -> Sequence[str]:
        return sorted(self._get("/connectors"))

    def config(self, name: str) -> dict[str, str] | None:
        """The connector's settings; None: there is no such connector."""
        answer = self._ask("GET", f"{_path(name)}/config", absent=True)
        return None if answer is None else dict(_json(answer))

    def put(self, name: str, config: Mapping[str, str]) -> None:
        """Create the connector, or give it these settings in place of all that it had."""
        self._ask("PUT", f"{_path(name)}/config", body=dict(config))

    def state(self, name: str) -> ConnectorState | None:
        """None: there is no such connector, or the cluster has only just heard of it."""
        answer = self._ask("GET", f"{_path(name)}/status", absent=True)
        return None if answer is None else ConnectorState.from_json(_json(answer))

    def offsets(self, name: str) -> Sequence[Mapping[str, Json]] | None:
        """How far it has read; None: this worker is too old to say (before Kafka 3.6)."""
        answer = self._ask("GET", f"{_path(name)}/offsets", absent=True)
        return None if answer is None else _json(answer)["offsets"]

    def restart(self, name: str, task: int | None = None) -> None:
        """All of it, or one task."""
        if task is None:
            self._ask("POST", f"{_path(name)}/restart", query={"includeTasks": "true", "onlyFailed": "false"})
        else:
            self._ask("POST", f"{_path(name)}/tasks/{task}/restart")

    def turn(self, name: str, action: str) -> None:
        """`pause`, `resume` or `stop`."""
        self._ask("PUT", f"{_path(name)}/{action}")

    def delete(self, name: str) -> None:
        self._ask("DELETE", _path(name))

    def known(self, name: str) -> UnknownName:
        """The error for a name that the worker does not know."""
        names = self.names()
        there = f"there are: {', '.join(names)}" if names else "it has none; headwater connect apply FILE makes one"
        return UnknownName(f"no connector '{name}' at {self.url}", hint=there)

    def _get(self, path: str) -> Json:
        return _json(self._ask("GET", path))

    def _ask(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
        absent: bool = False,  # whether 404 is an answer
    ) -> httpx.Response | None:
        deadline = time.monotonic() + self._patience_seconds
        while True:
            answer = self._once(method, path, body, query)
            # The cluster shares out its work anew, and takes no orders meanwhile.
            if answer.status_code != http.HTTPStatus.CONFLICT or time.monotonic() > deadline:
                break
            time.sleep(_POLL_SECONDS)
        if answer.is_success:
            return answer
        if absent and answer.status_code == http.HTTPStatus.NOT_FOUND:
            return None
        raise self._refused(answer)

    def _once(
        self, method: str, path: str, body: Mapping[str, str] | None, query: Mapping[str, str] | None
    ) -> httpx.Response:
        try:
            return self._http.request(method, path, json=body, params=query)
        except httpx.UnsupportedProtocol as error:
            raise InputError(f"{self.url} is no address", hint="write for example http://localhost:8083") from error
        except httpx.TransportError as error:
            raise EnvironmentFault(
                f"no Kafka Connect worker answers at {self.url}: {_reason(error)}",
                hint="start it (on this machine: headwater stack up connect), or name another with --url",
            ) from error

    def _refused(self, answer: httpx.Response) -> HeadwaterError:
        status = http.HTTPStatus(answer.status_code)
        if status in {http.HTTPStatus.UNAUTHORIZED, http.HTTPStatus.FORBIDDEN}:
            return EnvironmentFault(
                f"Kafka Connect at {self.url} refuses us: {status} {status.phrase}",
                hint="write connect: {username: …, password: …} in headwater.yaml",
            )
        said = _message(answer)
        if said is None:
            return _stranger(answer)
        message = self.without_secrets(said)
        if status == http.HTTPStatus.CONFLICT:
            return EnvironmentFault(
                f"Kafka Connect at {self.url} was still busy after {self._patience_seconds:g} s: {message}",
                hint="see whether its workers keep coming and going, then try again",
            )
        if status in {http.HTTPStatus.BAD_REQUEST, http.HTTPStatus.NOT_FOUND, http.HTTPStatus.UNPROCESSABLE_ENTITY}:
            return InputError(f"Kafka Connect at {self.url}: {message}")
        return EnvironmentFault(f"Kafka Connect at {self.url}: {status} {message}", hint="look into the worker's log")


def _path(name: str) -> str:
    # Workers refuse such a path, escaped or not, with an answer that explains nothing.
    if any(sign in "/\\%;" or ord(sign) < ord(" ") for sign in name) or name in {"", ".", ".."}:
        raise InputError(
            f"{name!r} cannot be the name of a connector", hint="leave out / \\ % ; and control characters"
        )
    return f"/connectors/{quote(name, safe='')}"


def _json(answer: httpx.Response | None) -> Json:
    assert answer is not None  # noqa: S101 - only whoever asks for it gets None
    try:
        return answer.json()
    except ValueError as error:
        raise _stranger(answer) from error


def _stranger(answer: httpx.Response) -> EnvironmentFault:
    return EnvironmentFault(
        f"what answers at {masked(str(answer.request.url))} is no Kafka Connect worker (status {answer.status_code})",
        hint="see whether the address is that of a worker's REST interface (usually port 8083)",
    )


def _message(answer: httpx.Response) -> str | None:
    """What the worker says; None: it is none, for they all say something."""
    try:
        return str(answer.json()["message"]).strip()
    except (ValueError, KeyError, TypeError):
        return None


def _reason(error: BaseException) -> str:
    """The innermost cause: `Connection refused` instead of how the client came to it."""
    if isinstance(error, httpx.TimeoutException):
        return "it does not answer in time"
    inner = error.__cause__ or error.__context__
    if isinstance(inner, BaseException):
        return _reason(inner)
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
