"""The Iceberg sink: Arrow writes splits as Parquet files, and one snapshot per window publishes them.

Start with `sink`, `modes` and `landing`. `catalog/` is the border to Iceberg's Java API; `schema` and `data_files`
are plain Python and Arrow, and run in tasks too; `merge/` and `cdc/` update tables with rows and with changes. `lake` reads
the tables for the engine.
"""
