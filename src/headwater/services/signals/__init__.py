"""Debezium's signals: rows in a table of the source that ask a running connector for something (D4)."""
