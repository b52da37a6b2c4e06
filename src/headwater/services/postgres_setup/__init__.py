"""Whether a PostgreSQL server is ready for change capture, and the SQL that prepares it."""
