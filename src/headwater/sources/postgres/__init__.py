"""Changes straight from PostgreSQL's log: a replication slot that is peeked at, and acknowledged last."""
