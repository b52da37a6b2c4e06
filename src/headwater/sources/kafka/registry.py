"""The one question that we ask a schema registry: which schema has this number?"""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
from dataclasses import dataclass

from headwater.config.frozen import SecretText
from headwater.model.errors import SourceUnreachable
from headwater.model.secret import masked

_TIMEOUT_SECONDS = 15.0
_NOT_FOUND = 404


class NoSuchSchema(Exception):
    """The registry answers, and has none that can be used; the text says why."""


@dataclass(frozen=True)
class Registry:
    """Where it is and who we are; sent to the executors."""

    url: str
    username: str | None = None
    password: SecretText | None = None

    def schema(self, number: int) -> str:
        """The Avro schema of that number, as JSON. Raises NoSuchSchema, SourceUnreachable."""
        address = f"{self.url.rstrip('/')}/schemas/ids/{number}"
        try:
            with urllib.request.urlopen(self._request(address), timeout=_TIMEOUT_SECONDS) as answer:  # noqa: S310 - the user's own address
                found = json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code == _NOT_FOUND:
                raise NoSuchSchema(f"the registry has no schema {number}") from None
            raise self._unreachable(address, f"{error.code} {error.reason}") from error
        except (OSError, ValueError) as error:
            raise self._unreachable(address, str(error)) from error
        if found.get("schemaType", "AVRO") != "AVRO" or found.get("references"):
            raise NoSuchSchema(f"schema {number} is {found.get('schemaType', 'AVRO')} with references, or no Avro")
        return str(found["schema"])

    def _request(self, address: str) -> urllib.request.Request:
        headers = {"Accept": "application/vnd.schemaregistry.v1+json"}
        if self.username and self.password:
            pair = f"{self.username}:{self.password.reveal()}".encode()
            headers["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"
        return urllib.request.Request(address, headers=headers)  # noqa: S310 - as above

    def _unreachable(self, address: str, reason: str) -> SourceUnreachable:
        return SourceUnreachable(
            f"schema registry at {masked(address)}: {masked(reason)}",
            hint="see whether it runs at this address, and whether username and password fit",
        )
