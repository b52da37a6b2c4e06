"""The Iceberg sink: splits become Parquet files written by Arrow, and one snapshot per window publishes them.

`sink.py` is the way through; what it decides (`naming`, `evolution`, `upsert`) and what runs in tasks
(`conform`, `writing`, `keyscan`) is plain Python and Arrow; `catalog`, `table` and `publish` are the border
to Iceberg's Java API on the session's own catalog.
"""
