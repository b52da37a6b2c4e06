"""Where Kafka Connect's workers are reached, for `headwater connect`."""

from __future__ import annotations

from pydantic import Field, field_validator

from headwater.config.frozen import SecretText, Settings


class ConnectSettings(Settings):
    """The REST interface of a Kafka Connect cluster; any of its workers will do."""

    url: str | None = Field(default=None, examples=["http://connect:8083"])
    """Its address. Without it the worker of the local stack, if it runs, else http://localhost:8083."""
    username: str | None = None
    """For workers that ask for basic authentication."""
    password: SecretText | None = None
    """With `username`."""

    @field_validator("url")
    @classmethod
    def _is_an_address(cls, url: str | None) -> str | None:
        if url is not None and not url.startswith(("http://", "https://")):
            raise ValueError(
                "write an address such as http://connect:8083"
            )  # the value stays out: it may hold a secret
        return url
