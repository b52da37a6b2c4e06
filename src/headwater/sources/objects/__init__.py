"""The `objects` source: a bucket or a folder, watched by listing it and by a ledger of what has been read."""
