"""Signatures against those of Amazon's own library."""

from __future__ import annotations

import datetime as dt

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given
from hypothesis import strategies as st

from headwater.model.secret import Secret
from headwater.storage.s3.credentials import GetRequest, Keys, escape_path, escape_query, sign

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
_HEADERS = st.dictionaries(st.sampled_from(["if-match", "range"]), st.from_regex(r"[ -~]{1,20}", fullmatch=True))


@given(key=_TEXT, query=st.dictionaries(_TEXT, _TEXT, max_size=3), headers=_HEADERS, token=st.none() | st.just("t"))
def test_signatures_are_those_of_amazons_library(
    key: str, query: dict[str, str], headers: dict[str, str], token: str | None
) -> None:
    path, encoded_query = f"/bucket/{escape_path(key)}", escape_query(query)
    request = GetRequest("host:9000", path, encoded_query, headers)
    now = dt.datetime.now(dt.UTC)
    keys = Keys("access", Secret("secret"), Secret(token) if token else None)
    ours = sign(request, keys, "eu-central-1", now)

    theirs = AWSRequest("GET", f"http://host:9000{path}", headers=ours | {"authorization": ""}, params=query)
    theirs.context["timestamp"] = ours["x-amz-date"]
    del theirs.headers["authorization"]
    signer = S3SigV4Auth(Credentials("access", "secret", token), "s3", "eu-central-1")
    signature = signer.signature(signer.string_to_sign(theirs, signer.canonical_request(theirs)), theirs)
    assert ours["authorization"].endswith(f"Signature={signature}")
