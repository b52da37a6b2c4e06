"""The cases, a module for each subject."""

from __future__ import annotations

from tests.sources.formats.case import Case
from tests.sources.formats.tables import (
    avro,
    compression,
    csv,
    csv_inference,
    debezium,
    json_documents,
    json_inference,
    json_messages,
    json_values,
    moments,
    parquet,
    text,
)

CASES: list[Case] = [
    one
    for table in (
        json_values,
        moments,
        json_messages,
        json_inference,
        json_documents,
        csv,
        csv_inference,
        text,
        compression,
        avro,
        parquet,
        debezium,
    )
    for one in table.CASES
]
