"""The `sql` source: tables and queries of a database, polled by a column that grows."""
