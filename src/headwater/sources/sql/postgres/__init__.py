"""PostgreSQL as a polled database."""
