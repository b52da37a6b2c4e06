"""SQLite as a polled database."""
