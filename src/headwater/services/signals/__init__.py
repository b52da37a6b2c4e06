"""Debezium's signals: rows in a table of the source that send requests to a running connector."""
