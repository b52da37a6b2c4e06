"""Listeners of a local broker that ask for a password, or speak TLS, so that clients can be proven against them."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from headwater.engine.java import find_java
from headwater.model.errors import EnvironmentFault

Listener = Literal["sasl", "tls", "sasl_tls"]

_PROTOCOLS: Mapping[str, str] = {"sasl": "SASL_PLAINTEXT", "tls": "SSL", "sasl_tls": "SASL_SSL"}
_SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
_LOGIN = "org.apache.kafka.common.security"
_STORE_PASSWORD = "headwater"  # noqa: S105 - of a key that lives on this machine for a test
_YEARS_10 = "3650"


def certificate(folder: Path) -> Path:
    """What clients of the TLS listeners trust, as PEM; made with the broker's first start in the folder."""
    return folder / "certificate.pem"


def listener_settings(listeners: Sequence[Listener], users: Mapping[str, str], folder: Path) -> Mapping[str, str]:
    """The lines of server.properties for the listeners."""
    settings: dict[str, str] = {}
    for listener in listeners:
        prefix = f"listener.name.{listener}"
        if "sasl" in listener:
            settings[f"{prefix}.sasl.enabled.mechanisms"] = ",".join(("PLAIN", *_SCRAM))
            accepted = " ".join(f"user_{name}={_quoted(password)}" for name, password in users.items())
            settings[f"{prefix}.plain.sasl.jaas.config"] = f"{_LOGIN}.plain.PlainLoginModule required {accepted};"
            for mechanism in _SCRAM:
                login = f"{_LOGIN}.scram.ScramLoginModule required;"
                settings[f"{prefix}.{mechanism.lower()}.sasl.jaas.config"] = login
        if "tls" in listener:
            settings[f"{prefix}.ssl.keystore.type"] = "PKCS12"
            settings[f"{prefix}.ssl.keystore.location"] = str(_key_store(folder))
            settings[f"{prefix}.ssl.keystore.password"] = _STORE_PASSWORD
    return settings


def protocol(listener: Listener) -> str:
    return _PROTOCOLS[listener]


def scram_arguments(users: Mapping[str, str]) -> Sequence[str]:
    """What the formatting of a new data folder is told, so that the users exist before the first connection."""
    return [
        part
        for name, password in users.items()
        for mechanism in _SCRAM
        for part in ("--add-scram", f"{mechanism}=[name={name},password={password}]")
    ]


def make_certificate(folder: Path) -> None:
    """A key for 127.0.0.1 and localhost that vouches for itself, by the tool that comes with every Java."""
    if certificate(folder).exists():
        return
    _key_store(folder).unlink(missing_ok=True)
    tool = find_java().executable.resolve().with_name("keytool")
    store = ["-alias", "broker", "-keystore", str(_key_store(folder)), "-storepass", _STORE_PASSWORD]
    key = ["-storetype", "PKCS12", "-keyalg", "EC", "-groupname", "secp256r1", "-validity", _YEARS_10]
    owner = ["-dname", "CN=headwater", "-ext", "san=ip:127.0.0.1,dns:localhost"]
    _run([tool, "-genkeypair", *store, *key, *owner])
    _run([tool, "-exportcert", *store, "-rfc", "-file", certificate(folder)])


def _run(command: Sequence[str | Path]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise EnvironmentFault(f"no certificate for Kafka: {(done.stdout + done.stderr).strip()}")


def _key_store(folder: Path) -> Path:
    return folder / "key.p12"


def _quoted(password: str) -> str:
    """Quoted for JAAS; backslashes once more for the properties file around it."""
    return '"' + password.replace("\\", "\\\\").replace('"', '\\"').replace("\\", "\\\\") + '"'
