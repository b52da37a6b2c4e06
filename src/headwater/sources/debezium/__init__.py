"""Debezium's change events, from whatever brings them, as change rows."""
