"""How S3, or what speaks its protocol, is reached."""

from __future__ import annotations

from pydantic import Field

from headwater.config.frozen import SecretText, Settings


class S3Settings(Settings):
    """For what is not written here AWS's own variables and files are asked (`AWS_ENDPOINT_URL`, `AWS_PROFILE`, …)."""

    endpoint: str | None = Field(default=None, examples=["http://localhost:9000"])
    """The server's address, where it is not Amazon's."""
    region: str | None = Field(default=None, examples=["eu-central-1"])
    """The bucket's region."""
    access_key: SecretText | None = None
    """With `secret_key`; otherwise AWS's own variables, profile or role."""
    secret_key: SecretText | None = None
    """With `access_key`."""
    session_token: SecretText | None = None
    """For keys that are lent for a while."""
    profile: str | None = None
    """A profile of AWS's configuration files."""
    role: str | None = Field(default=None, examples=["arn:aws:iam::123456789012:role/reader"])
    """A role to assume with the credentials that are found."""
    anonymous: bool = False
    """Sign nothing: for public buckets."""
    path_style: bool | None = None
    """The bucket in the path instead of in the host's name; by default where an `endpoint` is written."""
