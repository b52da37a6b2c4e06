"""One connection to a database in the driver's JVM, for planning and for the few rows at a mark.

Rows cross from the JVM in batches: one by one they would cost a round trip for every value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.config.sources.sql import JdbcSettings
from headwater.model.errors import HeadwaterError, InputError, SourceUnreachable
from headwater.model.secret import MASK, masked
from headwater.sources.sql.jdbc.types import ResultColumn
from headwater.sources.sql.jdbc.vendors import READ_COMMITTED, JdbcAddress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_BATCH_ROWS = 5_000
_ALIVE_SECONDS = 5
_TABLE_TYPES = ("TABLE", "BASE TABLE", "VIEW", "PARTITIONED TABLE", "FOREIGN TABLE", "MATERIALIZED VIEW")
_NO_NULLS = 0  # ResultSetMetaData.columnNoNulls
# Classes of SQLSTATE for errors in a user's SQL: syntax and names (SQL Server: S0).
_USER_ERRORS = ("42", "S0", "22", "37")


@dataclass(frozen=True)
class TableName:
    """A table of the catalog. `schema` is what users write before the dot."""

    schema: str
    name: str
    type: str = ""


class JdbcSession:
    """Connects when first needed; between `begin_view` and `end_view` all reads agree, where the database can."""

    def __init__(
        self, address: JdbcAddress, settings: JdbcSettings, folder: Path, spark: Callable[[], SparkSession]
    ) -> None:
        self.address, self.settings = address, settings
        self.driver = settings.driver or address.vendor.driver
        self._jar = None if settings.jar is None else folder / settings.jar
        self._spark = spark
        self._connection: Any = None

    def fetch(self, sql: str) -> list[tuple[str | None, ...]]:
        """The rows of a small result, as texts."""
        with self._statement() as statement:
            return self._texts(statement.executeQuery(sql))

    def describe(self, sql: str) -> list[ResultColumn]:
        """The columns of a statement."""
        with self._statement() as statement:
            metadata = statement.executeQuery(sql).getMetaData()
            return [
                ResultColumn(
                    name=metadata.getColumnLabel(number),
                    declared=metadata.getColumnTypeName(number) or "",
                    precision=metadata.getPrecision(number),
                    scale=metadata.getScale(number),
                    nullable=metadata.isNullable(number) != _NO_NULLS,
                    signed=metadata.isSigned(number),
                )
                for number in range(1, metadata.getColumnCount() + 1)
            ]

    def tables(self, schema: str | None, name: str | None) -> list[TableName]:
        """The tables and views of a schema (None: of all), with one exact name or with any."""
        with self._open_connection() as connection:
            metadata = connection.getMetaData()
            escape = metadata.getSearchStringEscape() or ""
            catalog, pattern = self._schema_filter(connection, schema, escape)
            result = metadata.getTables(catalog, pattern, "%" if name is None else _escape_pattern(name, escape), None)
            column = "TABLE_CAT" if self.address.vendor.by_catalog else "TABLE_SCHEM"
            tables = []
            while result.next():
                type_ = result.getString("TABLE_TYPE") or ""
                if type_.upper() in _TABLE_TYPES:
                    tables.append(TableName(result.getString(column) or "", result.getString("TABLE_NAME"), type_))
            result.close()
            return tables

    def primary_key(self, table: TableName) -> tuple[str, ...]:
        with self._open_connection() as connection:
            catalog, schema = (
                (table.schema, None) if self.address.vendor.by_catalog else (connection.getCatalog(), table.schema)
            )
            result = connection.getMetaData().getPrimaryKeys(catalog, schema or None, table.name)
            columns = []
            while result.next():
                columns.append((result.getInt("KEY_SEQ"), result.getString("COLUMN_NAME")))
            result.close()
            return tuple(name for _, name in sorted(columns))

    @property
    def default_schema(self) -> str:
        with self._open_connection() as connection:
            schema = connection.getCatalog() if self.address.vendor.by_catalog else connection.getSchema()
            return schema or ""

    def rows(self, sql: str, wire_schema: str) -> Iterator[list[tuple[Any, ...]]]:
        """The rows of a result in the types of `wire_schema` (Spark's DDL), in batches. Starts no Spark job."""
        from pyspark.sql import DataFrame

        with self._statement() as statement:
            spark, result = self._spark(), statement.executeQuery(sql)
            sql_package: Any = self._jvm.org.apache.spark.sql
            schema = sql_package.types.StructType.fromDDL(wire_schema)
            rows = sql_package.execution.datasources.jdbc.JdbcUtils.resultSetToRows(result, schema)
            batches = rows.grouped(_BATCH_ROWS)
            while batches.hasNext():
                batch = self._jvm.scala.jdk.javaapi.CollectionConverters.asJava(batches.next())
                frame = DataFrame(spark._jsparkSession.createDataFrame(batch, schema), spark)  # noqa: SLF001
                yield [tuple(row) for row in frame.collect()]

    def begin_view(self) -> None:
        self.end_view()
        with self._open_connection() as connection:
            connection.setAutoCommit(False)
            if self.address.vendor.begin:
                self._run(self.address.vendor.begin)

    def end_view(self) -> None:
        if self._connection is not None:
            with self._open_connection() as connection:
                if not connection.getAutoCommit():
                    connection.rollback()
                    connection.setAutoCommit(True)

    def ping(self) -> None:
        """Drop a dead connection; the next use connects again."""
        if self._connection is not None:
            with self._translated():
                if not self._connection.isValid(_ALIVE_SECONDS):
                    self._connection = None

    def close(self) -> None:
        from py4j.protocol import Py4JError

        if self._connection is not None:
            connection, self._connection = self._connection, None
            try:
                connection.close()
            except Py4JError:
                return  # the connection, or its JVM, has ended

    def use_driver(self, spark: SparkSession) -> None:
        """Make the driver's class known to the calling thread and the executors."""
        if self._jar is not None:
            if not self._jar.is_file():
                raise InputError(f"jdbc.jar: {self._jar} does not exist", hint=self._driver_hint)
            spark.sql(f'ADD JAR "{self._jar.absolute().as_uri()}"')  # a URI escapes quotes
        java: Any = spark._jsparkSession  # noqa: SLF001 - there is no public way to the class loader
        jvm: Any = spark.sparkContext._jvm  # noqa: SLF001
        jvm.java.lang.Thread.currentThread().setContextClassLoader(java.sharedState().jarClassLoader())

    # ── the connection ──────────────────────────────────────────────────────────────────────────────────────

    @property
    def _jvm(self) -> Any:
        return self._spark().sparkContext._jvm  # noqa: SLF001 - there is no public way to the JVM

    @contextmanager
    def _open_connection(self) -> Iterator[Any]:
        with self._translated():
            if self._connection is None:
                self._connection = self._connect()
            yield self._connection

    @contextmanager
    def _statement(self) -> Iterator[Any]:
        with self._open_connection() as connection:
            statement = connection.createStatement()
            try:
                statement.setFetchSize(_BATCH_ROWS)
                yield statement
            finally:
                statement.close()

    def _connect(self) -> Any:
        vendor = self.address.vendor
        properties = self._jvm.java.util.Properties()
        for name, value in self.address.properties.items():
            properties.setProperty(name, value)
        connection = self._driver().connect(self.address.url, properties)
        if connection is None:
            raise InputError(
                f"{self.address.text}: the driver {self.driver} does not accept this address",
                hint=f"correct url, or jdbc.driver; {self._driver_hint}",
            )
        self._connection = connection
        if vendor.session:
            self._run(vendor.session)
        isolation = vendor.isolation
        if vendor.isolation_allowed and self.fetch(vendor.isolation_allowed) != [("1",)]:
            isolation = READ_COMMITTED
        if isolation is not None:
            connection.setTransactionIsolation(isolation)
        return connection

    def _driver(self) -> Any:
        from py4j.protocol import Py4JJavaError

        spark = self._spark()
        self.use_driver(spark)
        gateway: Any = spark.sparkContext._gateway  # noqa: SLF001
        loader = self._jvm.java.lang.Thread.currentThread().getContextClassLoader()
        try:
            driver = loader.loadClass(self.driver)
        except Py4JJavaError:
            location = "on Spark's class path" if self._jar is None else f"in {self._jar}"
            raise InputError(
                f"{self.address.text}: the class {self.driver} is not {location}", hint=self._driver_hint
            ) from None
        classes, objects = self._jvm.java.lang.Class, self._jvm.java.lang.Object
        constructor = driver.getDeclaredConstructor(gateway.new_array(classes, 0))
        return constructor.newInstance(gateway.new_array(objects, 0))

    @property
    def _driver_hint(self) -> str:
        vendor = self.address.vendor
        return f"download {vendor.name}'s driver ({vendor.artifact} on Maven Central) and write jdbc: {{jar: path/to/the.jar}}"

    def _run(self, sql: str) -> None:
        statement = self._connection.createStatement()
        statement.execute(sql)
        statement.close()

    def _texts(self, result: Any) -> list[tuple[str | None, ...]]:
        width = result.getMetaData().getColumnCount()
        rows = []
        while result.next():
            rows.append(tuple(result.getString(number) for number in range(1, width + 1)))
        return rows

    def _schema_filter(self, connection: Any, schema: str | None, escape: str) -> tuple[str | None, str | None]:
        """A schema as the driver wants it: as a catalog, or as a pattern within the current one."""
        if self.address.vendor.by_catalog:
            return schema, None
        return connection.getCatalog(), None if not schema else _escape_pattern(schema, escape)

    # ── errors ──────────────────────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def _translated(self) -> Iterator[None]:
        from py4j.protocol import Py4JError, Py4JJavaError

        try:
            yield
        except Py4JJavaError as error:
            raise self._translate(error.java_exception) from None
        except Py4JError as error:
            self._connection = None
            raise SourceUnreachable(
                f"{self.address.text}: the JVM did not answer ({type(error).__name__})", hint="run again"
            ) from None

    def _translate(self, error: Any) -> HeadwaterError:
        message = self._without_secrets(str(error.getMessage() or error.toString()))
        state = error.getSQLState() if "SQL" in error.getClass().getName() else None
        if (state or "").startswith(_USER_ERRORS) and self._connection is not None:
            return InputError(
                f"{self.address.text}: {message}",
                hint="correct the names in table, columns and cursor, or where and query",
            )
        self.close()
        return SourceUnreachable(
            f"{self.address.text}: {message}", hint="check url, the database and the account's rights"
        )

    def _without_secrets(self, text: str) -> str:
        for name, value in self.address.properties.items():
            if value and any(word in name.lower() for word in ("password", "pwd", "secret", "token", "key")):
                text = text.replace(value, MASK)
        return masked(text)


def _escape_pattern(name: str, escape: str) -> str:
    """A name as a pattern that matches only it."""
    if not escape:
        return name
    for sign in (escape, "%", "_"):
        name = name.replace(sign, escape + sign)
    return name
