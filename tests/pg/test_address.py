"""Where a PostgreSQL server is: flags, variables, `.env` files; and no password in any message."""

from __future__ import annotations

from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

from headwater.model.errors import InputError, SourceUnreachable
from headwater.pg.address import Login, addresses, connected, only_address, read_dotenv, variable

SECRET = "hunter2-s3cret"  # noqa: S105 - the one that must not show


def parameters(login: Login, folder: Path, environment: dict[str, str] | None = None) -> list[dict[str, object]]:
    return [conninfo_to_dict(one.conninfo.reveal()) for one in addresses(login, environment or {}, folder)]


def test_a_dotenv_file_is_read_as_shells_read_it(tmp_path):
    (tmp_path / ".env").write_text(
        "# the operational databases\n\nexport POSTGRESQL_USER=admin\nPOSTGRESQL_PASSWORD='it s #1 $ecret'  # quoted\n"
        'POSTGRESQL_HOST="db.example"\nPOSTGRESQL_PORT = 5433   # not the default\nEMPTY=\nHASH=a#b\nLINES="a\\nb\\"c"\n'
    )
    assert read_dotenv(tmp_path / ".env") == {
        "POSTGRESQL_USER": "admin",
        "POSTGRESQL_PASSWORD": "it s #1 $ecret",
        "POSTGRESQL_HOST": "db.example",
        "POSTGRESQL_PORT": "5433",
        "EMPTY": "",
        "HASH": "a#b",
        "LINES": 'a\nb"c',
    }


@pytest.mark.parametrize("line", [SECRET, f"PASSWORD='{SECRET}", f'PASSWORD="{SECRET}" more', f"1PASSWORD={SECRET}"])
def test_a_broken_dotenv_file_is_told_by_its_line_and_not_by_what_it_holds(tmp_path, line):
    (tmp_path / ".env").write_text(f"A=1\n{line}\n")
    with pytest.raises(InputError) as raised:
        read_dotenv(tmp_path / ".env")
    assert ".env:2:" in raised.value.message
    assert SECRET not in str(raised.value)


def test_the_seeds_dotenv_file_and_the_databases_named_are_enough(tmp_path):
    (tmp_path / ".env").write_text(
        f"POSTGRESQL_USER=admin\nPOSTGRESQL_PASSWORD={SECRET}\nPOSTGRESQL_HOST=db.example\nPOSTGRESQL_PORT=5433\n"
    )
    urls = addresses(Login(databases=("sales", "hr")), {}, tmp_path)
    assert [str(one) for one in urls] == [
        "postgresql://admin@db.example:5433/sales",
        "postgresql://admin@db.example:5433/hr",
    ]
    assert [conninfo_to_dict(one.conninfo.reveal())["password"] for one in urls] == [SECRET, SECRET]
    assert SECRET not in repr(urls)


def test_a_flag_beats_the_environment_and_that_beats_the_file(tmp_path):
    (tmp_path / ".env").write_text("POSTGRESQL_HOST=file\nPOSTGRESQL_USER=file\nPOSTGRESQL_DATABASE=file\n")
    ((one),) = parameters(Login(host="flag"), tmp_path, {"POSTGRESQL_USER": "environment"})
    assert (one["host"], one["user"], one["dbname"]) == ("flag", "environment", "file")


def test_another_file_is_read_instead_of_the_one_that_lies_there(tmp_path):
    (tmp_path / ".env").write_text("POSTGRESQL_HOST=wrong\n")
    (tmp_path / "prod.env").write_text("POSTGRESQL_HOST=right\n")
    ((one),) = parameters(Login(env_file=Path("prod.env"), databases=("d",)), tmp_path)
    assert one["host"] == "right"
    with pytest.raises(InputError, match=r"cannot read .*missing\.env"):
        parameters(Login(env_file=Path("missing.env"), databases=("d",)), tmp_path)


def test_an_address_is_whole_and_a_file_that_lies_there_does_not_change_it(tmp_path):
    (tmp_path / ".env").write_text("POSTGRESQL_HOST=other\nPOSTGRESQL_PASSWORD=other\n")
    ((one),) = parameters(Login(url="postgresql://u@h:5433/d"), tmp_path)
    assert (one["host"], one["port"], one["user"], one["dbname"]) == ("h", "5433", "u", "d")
    assert "password" not in one


def test_an_address_comes_from_a_variable_so_that_no_password_stands_on_the_command_line(tmp_path):
    environment = {"PG_URL": f"postgresql://u:{SECRET}@h/d", "PW": "other"}
    ((one),) = parameters(Login(url="${PG_URL}"), tmp_path, environment)
    assert one["password"] == SECRET
    ((one),) = parameters(Login(url="${PG_URL}", password_env="PW"), tmp_path, environment)  # noqa: S106 - a name
    assert one["password"] == "other"  # noqa: S105
    for flags in ({"url": "${NO_URL}"}, {"url": "${PG_URL}", "password_env": "NO_URL"}):
        with pytest.raises(InputError, match="variable NO_URL is not set"):
            parameters(Login(**flags), tmp_path, environment)
    assert variable(Login(), "PW", "--x", environment, tmp_path) == "other"


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://u:{SECRET}@{SECRET}@h/d",
        f"postgresql://u:{SECRET}/{SECRET}@h/d",
        f"postgresql://u:{SECRET}@h:{SECRET}@h2/d",
        f"postgresql://u:{SECRET}@[h/d",
        f"host=h password={SECRET} nosuch=option",
        f"{SECRET}",
    ],
)
def test_an_address_that_cannot_be_read_is_refused_without_its_password(tmp_path, url):
    with pytest.raises(InputError) as raised:
        parameters(Login(url=url), tmp_path)
    assert SECRET not in str(raised.value)


def test_what_is_not_said_is_asked_for(tmp_path):
    with pytest.raises(InputError, match="name the PostgreSQL server"):
        parameters(Login(databases=("d",)), tmp_path)
    with pytest.raises(InputError, match="no database is given"):
        parameters(Login(host="h"), tmp_path)
    with pytest.raises(InputError, match="POSTGRESQL_PORT is not a number"):
        parameters(Login(host="h", databases=("d",)), tmp_path, {"POSTGRESQL_PORT": "abc"})
    with pytest.raises(InputError, match="--url excludes --host"):
        parameters(Login(url="postgresql://h/d", host="h"), tmp_path)
    with pytest.raises(InputError, match="several are given: a, b"):
        only_address(Login(host="h", databases=("a", "b")), {}, tmp_path)


def test_a_server_that_does_not_answer_is_told_without_the_password(tmp_path):
    address = only_address(Login(url=f"postgresql://u:{SECRET}@127.0.0.1:1/d"), {}, tmp_path)
    with pytest.raises(SourceUnreachable) as raised, connected(address):
        pass
    assert raised.value.exit_code == 3
    assert raised.value.message.startswith("postgresql://u@127.0.0.1:1/d: ")
    assert SECRET not in str(raised.value)
