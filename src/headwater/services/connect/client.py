"""A client of one Kafka Connect worker; translates its refusals to our errors."""

from __future__ import annotations

import base64
import http
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote, urlencode
from urllib.request import getproxies, proxy_bypass

import urllib3
from urllib3.util import Url, parse_url

from headwater.config.project import ConnectSettings
from headwater.model.errors import EnvironmentFault, HeadwaterError, InputError, UnknownName
from headwater.model.json_codec import from_json
from headwater.model.position.marks import Json
from headwater.model.secret import Secret, masked
from headwater.services.connect.connector import ConnectorState, Plugin, Validation, mask_values
from headwater.services.stack.stack import Stack

_CONNECT_SECONDS = 5.0
_POLL_SECONDS = 0.3
_LOCAL = {"localhost", "127.0.0.1", "[::1]"}
_SUCCESS = range(200, 300)


@dataclass(frozen=True)
class _Response:
    """An HTTP response, of any status."""

    url: str
    status: int
    body: bytes

    def json(self) -> Json:
        return json.loads(self.body)


class ConnectClient:
    """One worker, which forwards requests to the others of its cluster."""

    def __init__(
        self,
        url: str,
        username: str | None = None,
        password: Secret | None = None,
        *,
        rebalance_seconds: float = 60.0,  # how long a rebalance may refuse requests
        # A validation may wait for the database; Connect gives up after 90.
        answer_seconds: float = 100.0,
    ) -> None:
        self.url = masked(url)
        self._rebalance_seconds = rebalance_seconds
        self._timeout = urllib3.Timeout(connect=_CONNECT_SECONDS, read=answer_seconds)
        self._hidden: set[str] = set()
        address = _address(url)
        self._base = str(address._replace(auth=None)).rstrip("/")
        login = (username, password.reveal() if password else "") if username else _url_login(address)
        self._headers = {"Authorization": _basic_auth(*login)} if login else {}
        self._http = _pool(address)

    def close(self) -> None:
        self._http.clear()

    def hide(self, values: set[str]) -> None:
        """Mask these secrets in every message of the worker (G11)."""
        self._hidden |= values

    def without_secrets(self, text: str) -> str:
        return mask_values(self._hidden, text)

    def plugins(self) -> Sequence[Plugin]:
        plugins = [from_json(Plugin, plugin) for plugin in self._get("/connector-plugins")]
        return sorted(plugins, key=lambda plugin: plugin.name)

    def validate(self, connector_class: str, config: Mapping[str, str]) -> Validation:
        response = self._request(
            "PUT", f"/connector-plugins/{quote(connector_class, safe='')}/config/validate", body=dict(config)
        )
        return Validation.from_json(_parse(response))

    def names(self) -> Sequence[str]:
        return sorted(self._get("/connectors"))

    def config(self, name: str) -> dict[str, str] | None:
        """The connector's settings; None: it does not exist."""
        response = self._request("GET", f"{_path(name)}/config", or_none=True)
        return None if response is None else dict(_parse(response))

    def put(self, name: str, config: Mapping[str, str]) -> None:
        """Create the connector, or replace all of its settings."""
        self._request("PUT", f"{_path(name)}/config", body=dict(config))

    def state(self, name: str) -> ConnectorState | None:
        """None: the connector does not exist, or is too new for this worker."""
        response = self._request("GET", f"{_path(name)}/status", or_none=True)
        return None if response is None else from_json(ConnectorState, _parse(response))

    def offsets(self, name: str) -> Sequence[Mapping[str, Json]] | None:
        """How far it has read; None: this worker is too old to say (before Kafka 3.6)."""
        response = self._request("GET", f"{_path(name)}/offsets", or_none=True)
        return None if response is None else _parse(response)["offsets"]

    def require_state(self, name: str) -> ConnectorState:
        """Raises UnknownName if the connector does not exist."""
        state = self.state(name)
        if state is None:
            raise self.unknown_connector(name)
        return state

    def restart(self, name: str, task: int | None = None) -> None:
        """The connector with its tasks, or one task."""
        if task is None:
            self._request("POST", f"{_path(name)}/restart", query={"includeTasks": "true", "onlyFailed": "false"})
        else:
            self._request("POST", f"{_path(name)}/tasks/{task}/restart")

    def change_state(self, name: str, action: str) -> None:
        """`pause`, `resume` or `stop`."""
        self._request("PUT", f"{_path(name)}/{action}")

    def delete(self, name: str) -> None:
        self._request("DELETE", _path(name))

    def unknown_connector(self, name: str) -> UnknownName:
        names = self.names()
        hint = (
            f"its connectors: {', '.join(names)}" if names else "it has none; headwater connect apply FILE creates one"
        )
        return UnknownName(f"no connector '{name}' at {self.url}", hint=hint)

    def _get(self, path: str) -> Json:
        return _parse(self._request("GET", path))

    def _request(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
        or_none: bool = False,  # None for 404, instead of an error
    ) -> _Response | None:
        deadline = time.monotonic() + self._rebalance_seconds
        while True:
            response = self._send(method, path, body, query)
            # A rebalance refuses requests until it ends.
            if response.status != http.HTTPStatus.CONFLICT or time.monotonic() > deadline:
                break
            time.sleep(_POLL_SECONDS)
        if response.status in _SUCCESS:
            return response
        if or_none and response.status == http.HTTPStatus.NOT_FOUND:
            return None
        raise self._error(response)

    def _send(
        self, method: str, path: str, body: Mapping[str, str] | None, query: Mapping[str, str] | None
    ) -> _Response:
        target = f"{path}?{urlencode(query)}" if query else path
        try:
            response = self._http.request(
                method,
                f"{self._base}{target}",
                json=body,
                headers=dict(self._headers),
                timeout=self._timeout,
                retries=False,
                redirect=False,
            )
            return _Response(f"{self.url.rstrip('/')}{target}", response.status, response.data)
        except urllib3.exceptions.HTTPError as error:
            raise EnvironmentFault(
                f"no Kafka Connect worker answers at {self.url}: {_reason(error)}",
                hint="start it (on this machine: headwater stack up connect), or name another with --url",
            ) from error

    def _error(self, response: _Response) -> HeadwaterError:
        status = http.HTTPStatus(response.status)
        if status in {http.HTTPStatus.UNAUTHORIZED, http.HTTPStatus.FORBIDDEN}:
            return EnvironmentFault(
                f"Kafka Connect at {self.url} refuses the login: {status} {status.phrase}",
                hint="write connect: {username: …, password: …} in headwater.yaml",
            )
        reason = _message(response)
        if reason is None:
            return _not_connect(response)
        message = self.without_secrets(reason)
        if status == http.HTTPStatus.CONFLICT:
            return EnvironmentFault(
                f"Kafka Connect at {self.url} was still busy after {self._rebalance_seconds:g} s: {message}",
                hint="check whether workers keep joining and leaving, then try again",
            )
        if status in {http.HTTPStatus.BAD_REQUEST, http.HTTPStatus.NOT_FOUND, http.HTTPStatus.UNPROCESSABLE_ENTITY}:
            return InputError(f"Kafka Connect at {self.url}: {message}")
        return EnvironmentFault(f"Kafka Connect at {self.url}: {status} {message}", hint="read the worker's log")


def _address(url: str) -> Url:
    try:
        address = parse_url(url)
    except ValueError:
        address = Url()
    if address.scheme not in {"http", "https"} or not address.host:
        raise InputError(f"{masked(url)} is not a valid address", hint="write for example http://localhost:8083")
    return address


def _url_login(address: Url) -> tuple[str, str] | None:
    if address.auth is None:
        return None
    name, _, password = address.auth.partition(":")
    return unquote(name), unquote(password)


def _basic_auth(name: str, password: str) -> str:
    return f"Basic {base64.b64encode(f'{name}:{password}'.encode()).decode()}"


def _pool(address: Url) -> urllib3.PoolManager:
    proxies = getproxies()
    proxy = proxies.get(address.scheme or "") or proxies.get("all")
    # A proxy cannot reach a worker on this machine.
    if not proxy or address.host in _LOCAL or proxy_bypass(address.netloc or ""):
        return urllib3.PoolManager()
    proxy_address = _address(proxy if "://" in proxy else f"http://{proxy}")
    login = _url_login(proxy_address)
    headers = {"Proxy-Authorization": _basic_auth(*login)} if login else None
    return urllib3.ProxyManager(str(proxy_address._replace(auth=None)), proxy_headers=headers)


def _path(name: str) -> str:
    # Workers refuse such a path, escaped or not, without an explanation.
    if any(character in "/\\%;" or ord(character) < ord(" ") for character in name) or name in {"", ".", ".."}:
        raise InputError(
            f"{name!r} cannot be the name of a connector", hint="leave out / \\ % ; and control characters"
        )
    return f"/connectors/{quote(name, safe='')}"


def _parse(response: _Response | None) -> Json:
    assert response is not None  # noqa: S101 - None only with or_none=True
    try:
        return response.json()
    except ValueError as error:
        raise _not_connect(response) from error


def _not_connect(response: _Response) -> EnvironmentFault:
    return EnvironmentFault(
        f"{response.url} is not a Kafka Connect worker (status {response.status})",
        hint="use the address of a worker's REST interface (usually port 8083)",
    )


def _message(response: _Response) -> str | None:
    """The worker's message; None: the server is not a worker, because every worker sends one."""
    try:
        return str(response.json()["message"]).strip()
    except (ValueError, KeyError, TypeError):
        return None


def _reason(error: BaseException) -> str:
    """The innermost cause, such as `Connection refused`."""
    errors = urllib3.exceptions  # urllib3 derives refused connections from timeouts
    if isinstance(error, errors.TimeoutError) and not isinstance(error, errors.NewConnectionError):
        return "timeout"
    inner = getattr(error, "reason", None) or error.__cause__ or error.__context__
    if isinstance(inner, BaseException):
        return _reason(inner)
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


VARIABLE = "HEADWATER_CONNECT_URL"
SETTING = "HEADWATER_CONNECT__URL"  # the setting's own variable
DEFAULT = "http://localhost:8083"
STACK = Path(".headwater/stack")


@dataclass(frozen=True)
class Address:
    """A worker's address, and where it was configured."""

    url: str
    origin: str


def find_worker(flag: str | None, environment: Mapping[str, str], settings: ConnectSettings, folder: Path) -> Address:
    """The address by precedence: flag, environment, settings, local stack, default. `folder` is the project's."""
    if flag:
        return Address(flag, "--url")
    if environment.get(VARIABLE):
        return Address(environment[VARIABLE], VARIABLE)
    if settings.url:
        return Address(settings.url, SETTING if environment.get(SETTING) else "headwater.yaml")
    stack_url = _stack_worker(folder / STACK)
    if stack_url:
        return Address(stack_url, f"the stack in {folder / STACK}")
    return Address(DEFAULT, "the default")


def _stack_worker(folder: Path) -> str | None:
    for server in Stack(folder).status():
        if server.name == "connect" and server.state == "running":
            return server.address["url"]
    return None
