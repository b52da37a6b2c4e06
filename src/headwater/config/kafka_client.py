"""Settings that every client of Kafka shares: where the brokers are, who we are, and librdkafka's own options."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from headwater.config.frozen import SecretText, Settings

OptionValue = str | int | float | bool

# Options of librdkafka that are settings of their own here: written twice, one of them would be ignored.
_OWN_SETTINGS = {
    "bootstrap.servers": "brokers",
    "metadata.broker.list": "brokers",
    "security.protocol": "security",
    "sasl.mechanism": "security.mechanism",
    "sasl.mechanisms": "security.mechanism",
    "sasl.username": "security.username",
    "sasl.password": "security.password",
}


class KafkaTls(Settings):
    """Encrypted connections; paths are relative to the pipeline's file."""

    ca: str | None = None
    """File with the certificates to trust, PEM. Default: those of the system."""
    certificate: str | None = None
    """File with our own certificate, PEM, for brokers that ask clients for one."""
    key: str | None = None
    """File with the certificate's private key, PEM."""
    key_password: SecretText | None = None
    """Of the private key."""
    check_hostname: bool = True
    """Whether the broker's certificate must name the host that we connect to."""

    @model_validator(mode="after")
    def _both_or_none(self) -> KafkaTls:
        if (self.certificate is None) != (self.key is None):
            raise ValueError("certificate and key belong together; write both or neither")
        return self


class KafkaSecurity(Settings):
    """How the connection is protected and who we are."""

    tls: bool | KafkaTls = False
    """`true`, or where the certificates are."""
    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] | None = None
    """SASL: how the password is proven. Others by `options`."""
    username: str | None = None
    """For SASL."""
    password: SecretText | None = None
    """For SASL."""

    @model_validator(mode="after")
    def _whole_login(self) -> KafkaSecurity:
        given = (self.mechanism, self.username, self.password)
        if any(given) and not all(given):
            raise ValueError("mechanism, username and password belong together; write all three or none")
        return self

    @property
    def protocol(self) -> str:
        """In Kafka's words."""
        return f"{'SASL_' if self.mechanism else ''}{'SSL' if self.tls else 'PLAINTEXT'}"


class KafkaClient(Settings):
    """What is needed to reach a Kafka cluster."""

    brokers: str = Field(min_length=1, examples=["localhost:9092"])
    """`host:port`, several with commas; one that answers is enough to find the others."""
    security: KafkaSecurity = KafkaSecurity()
    """TLS and SASL."""
    options: dict[str, OptionValue] = {}
    """Any other option of librdkafka, as it spells it: `{client.id: headwater, socket.keepalive.enable: true}`."""

    @field_validator("options")
    @classmethod
    def _not_said_twice(cls, options: dict[str, OptionValue]) -> dict[str, OptionValue]:
        for name, setting in _OWN_SETTINGS.items():
            # Mechanisms that we do not know (OAUTHBEARER) are set by options alone, protocol included.
            if name in options and not (name.startswith(("sasl.", "security.")) and "sasl.mechanisms" in options):
                raise ValueError(f"{name} has a setting of its own: {setting}")
        return options

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        # G11: `ssl.key.pem` is a secret as well; no list of names would be complete.
        for name, value in super().__repr_args__():
            yield name, sorted(value) if name == "options" else value


@dataclass(frozen=True)
class ClientOptions:
    """Everything that librdkafka is told. Picklable, so that tasks can connect; prints as where it leads to (G11)."""

    brokers: str
    _values: tuple[tuple[str, OptionValue], ...] = field(repr=False)

    def reveal(self, **more: OptionValue) -> dict[str, OptionValue]:
        """For a client's constructor; `more` are written with underscores, and win."""
        return {**dict(self._values), **{name.replace("_", "."): value for name, value in more.items()}}


def client_options(settings: KafkaClient, folder: Path) -> ClientOptions:
    """The settings in librdkafka's words; paths are taken from `folder`."""
    security = settings.security
    made: dict[str, OptionValue] = {
        "bootstrap.servers": settings.brokers,
        "security.protocol": security.protocol.lower(),
        # Librdkafka would write to the terminal whenever a connection ends; what matters comes as an error.
        "log_level": 0,
    }
    if security.mechanism and security.username and security.password:
        made["sasl.mechanisms"] = security.mechanism
        made["sasl.username"] = security.username
        made["sasl.password"] = security.password.reveal()
    if isinstance(security.tls, KafkaTls):
        made |= _tls(security.tls, folder)
    return ClientOptions(settings.brokers, tuple({**made, **settings.options}.items()))


def _tls(tls: KafkaTls, folder: Path) -> dict[str, OptionValue]:
    files = {"ssl.ca.location": tls.ca, "ssl.certificate.location": tls.certificate, "ssl.key.location": tls.key}
    made: dict[str, OptionValue] = {name: str(folder / path) for name, path in files.items() if path is not None}
    if tls.key_password is not None:
        made["ssl.key.password"] = tls.key_password.reveal()
    if not tls.check_hostname:
        made["ssl.endpoint.identification.algorithm"] = "none"
    return made
