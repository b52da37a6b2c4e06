"""Avro as columns. Shared by the sources that bring it."""
