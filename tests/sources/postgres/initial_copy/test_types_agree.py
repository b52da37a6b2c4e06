"""Every type at its edges: what a copy reads is what the log says of the same row, and what PostgreSQL writes (G8)."""

from __future__ import annotations

import json
import uuid

import psycopg
import pytest

from headwater.model.errors import ValueNotKept
from headwater.model.secret import Secret
from headwater.pg.connection import SESSION, PostgresSession
from headwater.sources.postgres.catalog import ColumnTypes
from headwater.sources.postgres.initial_copy.windows import copied_rows
from tests.sources.postgres.initial_copy.copy_rows import order_for, read, read_with_rejects, rows_of, snapshot_of
from tests.sources.postgres.wal.slot_wal import slot_wal

OWN = """
CREATE EXTENSION hstore; CREATE EXTENSION citext; CREATE EXTENSION ltree; CREATE EXTENSION isn; CREATE EXTENSION cube;
CREATE EXTENSION vector; CREATE SCHEMA "Odd Types";
CREATE TYPE "Odd Types"."Mood" AS ENUM ('sad', 'it''s ok, "really"', '');
CREATE TYPE pair AS (a int, b text); CREATE TYPE nest AS (p pair, l text[], i inet);
CREATE DOMAIN positive AS int CHECK (VALUE > 0); CREATE DOMAIN price AS numeric(8,2); CREATE DOMAIN list_price AS price;
CREATE DOMAIN padded AS char(5); CREATE DOMAIN feeling AS "Odd Types"."Mood"; CREATE DOMAIN many AS int[];
CREATE DOMAIN couple AS pair; CREATE DOMAIN span AS int4range; CREATE DOMAIN yes AS bool; CREATE DOMAIN wide AS numeric(38,20);
CREATE TYPE floats AS RANGE (subtype = float8);
CREATE FUNCTION pair_words(pair) RETURNS text LANGUAGE sql AS $$ SELECT 'a cast of the user''s own' $$;
CREATE CAST (pair AS text) WITH FUNCTION pair_words(pair) AS ASSIGNMENT"""
OTHER_DEFAULTS = [
    "TimeZone = 'Asia/Tokyo'", "IntervalStyle = 'iso_8601'", "bytea_output = 'escape'", "extra_float_digits = 0",
    "DateStyle = 'SQL, DMY'",
]  # fmt: skip
# Type → values; NULL comes with all of them.
VALUES = {
    "bool": ["true", "false"],
    "int2": ["-32768", "32767", "0"],
    "int4": ["-2147483648", "2147483647"],
    "int8": ["-9223372036854775808", "9223372036854775807"],
    "real": ["NaN", "Infinity", "-Infinity", "-0", "1e-45", "3.4028235e38", "0.1", "16777216", "1.17549435e-38"],
    "float8": ["NaN", "Infinity", "-Infinity", "-0", "5e-324", "1.7976931348623157e308", "0.1", "2.2250738585072014e-308"],
    "numeric": ["NaN", "Infinity", "-Infinity", "0.0000000000", "-1.10", "1e-16383", "1e1000", "123456789012345678901234567890.5"],
    "numeric(12,2)": ["0", "-0.01", "9999999999.99", "1.5"],
    "numeric(18,0)": ["999999999999999999", "-999999999999999999"],
    "numeric(19,0)": ["9999999999999999999", "-9223372036854775809"],
    "numeric(38,0)": ["99999999999999999999999999999999999999", "-18446744073709551616", "18446744073709551615"],
    "numeric(38,38)": ["0.99999999999999999999999999999999999999", "-0.00000000000000000000000000000000000001"],
    "numeric(38,19)": ["9999999999999999999.9999999999999999999", "-1"],
    "numeric(39,2)": ["NaN", "1234567890123456789012345678901234567.89"],
    "numeric(5,-2)": ["1234500", "NaN"],
    "numeric(3,5)": ["0.00999"],
    "money": ["-92233720368547758.08", "92233720368547758.07", "0.5"],
    "text": ["", " padded ", "NULL", "O'Brien \"😀\" \\ \t\n\x01", "x" * 3000],
    "varchar(20)": ["", "trailing  ", "ÄÖ"],
    "char(5)": ["", "ab", "ab c ", "ä"],
    "bpchar": ["trailing   ", ""],
    '"char"': ["", "a", "\\200", "\\377", "\\\\"],
    "name": ["n", "x" * 63, ""],
    "bytea": ["\\x", "\\x00ff5c27", "\\xdeadbeef"],
    "date": ["0001-01-01", "9999-12-31", "2000-02-29", "1969-12-31"],
    "time": ["00:00:00", "24:00:00", "23:59:59.999999"],
    "time(0)": ["12:34:56"],
    "timetz": ["00:00:00+15:59:59", "24:00:00-15:59:59", "12:00:00.5+05:30"],
    "timestamp": ["0001-01-01 00:00:00", "9999-12-31 23:59:59.999999", "1969-12-31 23:59:59.999999"],
    "timestamptz": ["0001-01-01 00:00:00+00", "9999-12-31 23:59:59.999999+00", "2026-03-29 02:30:00.000001+02"],
    "timestamptz(3)": ["2026-03-29 02:30:00.1239+02"],
    "interval": ["0", "-1 mon +2 days -03:04:05.678901", "178000000 years", "infinity", "-infinity", "1 day -00:00:01"],
    "interval year to month": ["1-2"],
    "uuid": ["00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"],
    "json": ['{"b":1, "a": 1.10, "a":2}', "null", '"\\u0041"', " [ ] "],
    "jsonb": ['{"b":1,"a":1.10}', "null", "1e400", '"\\ud83d\\ude00"', "[]"],
    "jsonpath": ["$.a[*] ? (@ > 1)"],
    "xml": [],  # the server of these tests was built without it
    "inet": ["10.0.0.1", "10.0.0.1/8", "10.0.0.1/32", "::1", "::1/128", "fe80::/10", "::ffff:1.2.3.4"],
    "cidr": ["10.0.0.0/8", "10.1.2.3/32", "::/0", "2001:db8::/32"],
    "macaddr": ["08:00:2b:01:02:03"],
    "macaddr8": ["08:00:2b:01:02:03:04:05"],
    "bit(3)": ["101", "000"],
    "varbit": ["", "1", "10101010101"],
    "point": ["(1.5,-0)", "(NaN,Infinity)"],
    "line": ["{1,2,3}"],
    "lseg": ["[(0,0),(1,1)]"],
    "box": ["(1,1),(0,0)"],
    "path": ["[(0,0),(1,1)]", "((0,0),(1,1))"],
    "polygon": ["((0,0),(1,1),(1,0))"],
    "circle": ["<(0,0),1e-300>"],
    "tsvector": ["a:1A 'it''s':2", ""],
    "tsquery": ["a & !b:*", ""],
    "oid": ["0", "4294967295"],
    "xid": ["4294967295"],
    "xid8": ["18446744073709551615"],
    "cid": ["7"],
    "tid": ["(4294967295,65535)", "(0,0)"],
    "pg_lsn": ["0/0", "FFFFFFFF/FFFFFFFF"],
    "pg_snapshot": ["10:20:10,14,15"],
    "txid_snapshot": ["10:20:10,14,15"],
    "oidvector": ["1 2 3", ""],
    "int2vector": ["1 -2", ""],
    "refcursor": ["c"],
    "regclass": ["pg_class", "0"],
    "regtype": ["int4", '"Odd Types"."Mood"'],
    "regproc": ["now"],
    "regprocedure": ["abs(integer)"],
    "regoper": ["|/"],
    "regoperator": ["+(integer,integer)"],
    "regnamespace": ["pg_catalog", '"Odd Types"'],
    "regrole": ["postgres"],
    "regcollation": ['"C"'],
    "regconfig": ["english"],
    "regdictionary": ["simple"],
    "aclitem": ["postgres=r/postgres"],
    "int4[]": ["{}", "{{1,NULL},{3,4}}", "[0:1]={1,2}"],
    "text[]": ['{"a,b","NULL",NULL,"","\\"q\\"","back\\\\slash"," space "}'],
    "bool[]": ["{t,f,NULL}"],
    "numeric(12,2)[]": ["{1,NULL,NaN}"],
    "char(3)[]": ["{a,NULL,abc}"],
    "bytea[]": ['{"\\\\x00ff",NULL}'],
    "timestamptz[]": ['{"2026-03-29 02:30:00.5+02",infinity,NULL,"0044-03-15 BC"}'],
    "interval[]": ['{"1 mon"}'],
    "float8[]": ["{0.1,NaN,-Infinity,1e300}"],
    "jsonb[]": ['{"{\\"a\\": 1}",NULL}'],
    "inet[]": ["{10.0.0.1,10.0.0.0/8}"],
    "money[]": ["{1.5}"],
    '"Odd Types"."Mood"[]': ['{sad,"it\'s ok, \\"really\\"",""}'],
    "pair[]": ['{"(1,\\"a,b\\")",NULL,"(,)"}'],
    "hstore[]": ['{"\\"a\\"=>\\"1\\"",NULL}'],
    "int4range": ["empty", "[1,5)", "(,)", "[1,)"],
    "int8range": ["[1,9223372036854775807)"],
    "numrange": ["[1.10,2.20]", "(NaN,)"],
    "daterange": ["[2026-01-01,infinity)", "[0044-03-15 BC,)"],
    "tsrange": ['["2026-01-01 00:00","infinity"]'],
    "tstzrange": ['["2026-01-01 00:00+05","2026-01-02 00:00+00")'],
    "int4multirange": ["{}", "{[1,3),[5,8)}"],
    "tstzmultirange": ['{["2026-01-01 00:00+05","2026-01-02 00:00+00")}'],
    "floats": ["[0.1,1e300)"],
    '"Odd Types"."Mood"': ["sad", "it's ok, \"really\"", ""],
    "pair": ["(1,x)", "(,)", '(,"")', '(-1,"a ""q"" , b")'],
    "nest": ['("(1,x)","{a,NULL}",10.0.0.1)', "(,,)"],
    "positive": ["5"],
    "price": ["5.25", "-0.01"],
    "list_price": ["999999.99"],
    "padded": ["ab"],
    "feeling": ["sad"],
    "many": ["{1,2}"],
    "couple": ["(1,x)", "(,)"],
    "span": ["[1,5)"],
    "yes": ["true", "false"],
    "wide": ["-123456789012345678.12345678901234567890"],
    "price[]": ["{1.5,NULL}"],
    "hstore": ['"a"=>"1", "b"=>NULL', ""],
    "citext": ["MiXed", ""],
    "ltree": ["Top.Science"],
    "isbn": ["978-0-393-04002-9"],
    "cube": ["(1,2),(3,4)"],
    "vector": ["[1,2.5,-3]"],
}  # fmt: skip


COLUMNS = {f"c{number}": declared for number, declared in enumerate(VALUES)}
ROWS = max(map(len, VALUES.values())) + 1  # the last holds NULL alone


@pytest.fixture(scope="module")
def log(postgres_url):
    """A column per type, its rows written while a slot was there; other defaults than those of our sessions."""
    name = f"t_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}")
    url = postgres_url.rpartition("/")[0] + f"/{name}"
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(OWN)
        admin.execute(f"CREATE TABLE t (id int PRIMARY KEY, {', '.join(f'{c} {kind}' for c, kind in COLUMNS.items())})")
        for setting in OTHER_DEFAULTS:
            admin.execute(f"ALTER DATABASE {name} SET {setting}")
    with slot_wal(url) as log:
        for row in range(ROWS):
            values = [literal((VALUES[kind] + [None] * ROWS)[row]) + f"::{kind}" for kind in COLUMNS.values()]
            log.sql(f"SET DateStyle = 'ISO'; INSERT INTO t VALUES ({row}, {', '.join(values)})")
        yield log
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


def literal(value: str | None) -> str:
    return "NULL" if value is None else "E'" + value.replace("\\", "\\\\").replace("'", "''") + "'"


def test_every_value_of_a_copy_is_that_of_the_log(log):
    session = PostgresSession(Secret(log.url))
    column_types = ColumnTypes(session)
    logged = log.read({"t": ("id",)}, column_types=lambda layout: list(column_types.of(layout, ())))
    session.close()
    assert not logged.rejects
    with snapshot_of(log.url) as snapshot:
        rows = copied_rows(Secret(log.url), order_for(log.url, snapshot, "t"))
        copied = read(rows)
    for column, declared in COLUMNS.items():
        assert [same(row[column]) for row in copied] == [same(row[column]) for row in logged.rows("t")], declared
        assert sum(row[column] is not None for row in copied) == len(VALUES[declared]), declared
        assert logged.tables["t"][0].schema.field(column).type == rows.schema.field(column).type, declared


def same(value: object) -> object:
    """NaN is equal to itself here, and -0 is not 0."""
    return repr(value) if isinstance(value, float) else value


def test_every_value_as_text_is_that_of_its_output_function(log):
    """The oracle is COPY's text format, which calls the output function and nothing else."""
    copied = rows_of(log.url, "t", as_text=list(COLUMNS))
    with psycopg.connect(log.url, autocommit=True) as plain:
        for name, value in SESSION.items():
            plain.execute("SELECT set_config(%s, %s, false)", [name, value])
        with plain.cursor().copy("COPY t TO STDOUT") as copy:
            written = [row[1:] for row in copy.rows()]
    for location, (column, declared) in enumerate(COLUMNS.items()):
        assert [row[column] for row in copied] == [row[location] for row in written], declared


def test_every_type_that_a_column_can_have_is_among_them(log):
    """A type of the server that nobody looked at yet would be noticed here."""
    rows = log.sql("""
        SELECT typname FROM pg_type WHERE oid < 10000 AND typtype IN ('b', 'r', 'm') AND typcategory <> 'A'
        AND NOT oid IN (SELECT atttypid FROM pg_attribute WHERE attrelid = 't'::regclass AND attnum > 0)""")
    unseen = {name for (name,) in rows}
    # Of the catalog alone: no user's table can have them, or nobody can write a value.
    internal = {"pg_node_tree", "pg_ndistinct", "pg_dependencies", "pg_mcv_list", "pg_brin_bloom_summary",
                "pg_brin_minmax_multi_summary", "gtsvector", "pg_ddl_command"}  # fmt: skip
    multiranges = {"int8multirange", "nummultirange", "datemultirange", "tsmultirange"}
    assert unseen - internal - multiranges == set()


UNKEPT = [
    ("numeric(12,2)", "NaN", "NaN or infinity"),
    ("numeric(38,10)", "NaN", "NaN or infinity"),
    ("date", "infinity", "outside the years"),
    ("date", "0044-03-15 BC", "outside the years"),
    ("date", "5874897-12-31", "outside the years"),
    ("timestamp", "-infinity", "outside the years"),
    ("timestamp", "294276-12-31 23:59:59.999999", "outside the years"),
    ("timestamptz", "infinity", "outside the years"),
    ("timestamptz", "4714-11-24 00:00:00+00 BC", "outside the years"),
    ("timestamptz", "10000-01-01 00:00:00+00", "outside the years"),
]


@pytest.mark.parametrize(("declared", "value", "why"), UNKEPT, ids=str)
def test_a_value_without_a_place_is_set_aside_as_the_log_has_it_or_stops_the_read(database, declared, value, why):
    with slot_wal(database, f"CREATE TABLE t (id int PRIMARY KEY, c {declared}, flag bool, pad char(4))") as log:
        log.sql(f"INSERT INTO t VALUES (1, '{value}', true, 'p'), (2, NULL, false, 'q')")
        with snapshot_of(database) as snapshot:
            rows = copied_rows(Secret(database), order_for(database, snapshot, "t"))
            landed, (reject,) = read_with_rejects(rows)
            with pytest.raises(ValueNotKept) as caught:
                read(rows)
        from_log = log.read({"t": ("id",)}).rejects
    assert [row["id"] for row in landed] == [2]
    assert why in reject.reason
    assert reject.location == {"row": '{"id": 1}'}
    assert json.loads(reject.payload) == {"id": "1", "c": value, "flag": "t", "pad": "p   "}
    assert json.loads(from_log[0].payload)["c"] == value
    assert "column c" in str(caught.value)
    assert "as_text: {t: [c]}" in str(caught.value)
    assert [row["c"] for row in rows_of(database, "t", as_text=["c"])] == [value, None]


def test_rows_without_a_key_are_set_aside_by_their_places(database):
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (day date); INSERT INTO t VALUES ('infinity'), ('2026-01-01'), ('infinity')")
    with snapshot_of(database) as snapshot:
        landed, rejects = read_with_rejects(copied_rows(Secret(database), order_for(database, snapshot, "t")))
    assert [row["_row"] for row in landed] == [2]
    assert [json.loads(reject.location["row"]) for reject in rejects] == [{"ctid": "(0,1)"}, {"ctid": "(0,3)"}]
    assert len({reject.id for reject in rejects}) == 2
