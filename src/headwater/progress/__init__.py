"""Progress stores: memory, file, SQLite, PostgreSQL, and several levels of them."""
