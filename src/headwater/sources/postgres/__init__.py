"""Change capture from PostgreSQL's WAL: a replication slot that is peeked, and acknowledged last."""
