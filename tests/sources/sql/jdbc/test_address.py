"""What users write as an address, and what becomes of its secrets."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.config.pipeline import SourceSettings
from headwater.model.errors import InputError
from headwater.sources.open import open_source
from headwater.sources.sql.jdbc.vendors import jdbc_address

ADDRESSES = {
    "mysql://ann:s3cret@db:3307/shop?connectTimeout=5000": (
        "jdbc:mysql://db:3307/shop",
        "mysql://db:3307/shop",
        {"user": "ann", "password": "s3cret", "connectTimeout": "5000", "tinyInt1isBit": "false"},
    ),
    "mariadb://ann:s%40%2Fcret@db/shop": (
        "jdbc:mysql://db/shop?permitMysqlScheme",
        "mariadb://db/shop",
        {"user": "ann", "password": "s@/cret"},
    ),
    "mssql://sa:s3cret@[::1]:1433/shop?encrypt=true": (
        "jdbc:sqlserver://[::1]:1433",
        "mssql://[::1]:1433/shop",
        {"user": "sa", "password": "s3cret", "databaseName": "shop", "encrypt": "true"},
    ),
    "oracle://scott:s3cret@db:1521/XEPDB1": (
        "jdbc:oracle:thin:@//db:1521/XEPDB1",
        "oracle://db:1521/XEPDB1",
        {"user": "scott", "password": "s3cret"},
    ),
    "jdbc:mysql://ann:s3cret@db/shop?useSSL=true": (
        "jdbc:mysql://db/shop",
        "jdbc:mysql://db/shop",
        {"user": "ann", "password": "s3cret", "useSSL": "true"},
    ),
    "jdbc:mariadb://db/shop?user=ann&password=s3cret": (
        "jdbc:mysql://db/shop?permitMysqlScheme",
        "jdbc:mariadb://db/shop",
        {"user": "ann", "password": "s3cret"},
    ),
    "jdbc:sqlserver://db:1433;databaseName=shop;user=sa;password={s3;cret}}};encrypt=true": (
        "jdbc:sqlserver://db:1433",
        "jdbc:sqlserver://db:1433",
        {"databaseName": "shop", "user": "sa", "password": "s3;cret}", "encrypt": "true"},
    ),
    "jdbc:oracle:thin:scott/s3cret@//db:1521/XEPDB1": (
        "jdbc:oracle:thin:@//db:1521/XEPDB1",
        "jdbc:oracle:thin:@//db:1521/XEPDB1",
        {"user": "scott", "password": "s3cret"},
    ),
    "jdbc:postgresql://ann:s3cret@db:5432/shop?sslmode=require": (
        "jdbc:postgresql://db:5432/shop",
        "jdbc:postgresql://db:5432/shop",
        {"user": "ann", "password": "s3cret", "sslmode": "require"},
    ),
    "jdbc:sqlite:shop.db": ("jdbc:sqlite:/data/shop.db", "jdbc:sqlite:/data/shop.db", {"open_mode": "1"}),
}


@pytest.mark.parametrize("written", ADDRESSES)
def test_an_address_becomes_a_url_without_secrets_and_properties(written):
    url, shown, properties = ADDRESSES[written]
    address = jdbc_address(written, Path("/data"))
    assert (address.url, address.text) == (url, shown)
    assert properties.items() <= address.properties.items()
    assert "cret" not in repr(address)


@pytest.mark.parametrize("written", ["mysql://ann:s3cret@/shop", "mysql://ann:s3cret@db:port/shop", "oracle:///x"])
def test_an_address_that_is_none_is_refused_without_being_shown(written):
    with pytest.raises(InputError, match="cannot parse the address") as caught:
        jdbc_address(written, Path())
    assert "s3cret" not in str(caught.value)


def test_an_unknown_kind_of_database_is_refused():
    with pytest.raises(InputError, match="jdbc:db2 is not supported") as caught:
        jdbc_address("jdbc:db2://db/shop:user=ann;password=s3cret;", Path())
    assert "jdbc:oracle:…" in caught.value.hint
    assert "s3cret" not in str(caught.value)


def test_without_a_session_a_jdbc_source_is_refused():
    settings = SourceSettings.model_validate({"sql": {"url": "mysql://db/shop", "table": "t", "cursor": "id"}})
    with pytest.raises(InputError, match="Spark session"):
        open_source(settings, Path(), 2)
