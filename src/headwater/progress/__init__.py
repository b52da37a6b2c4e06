"""Where it is remembered how far each pipeline got: memory, file, SQLite, PostgreSQL, and levels of them."""
