"""Services around the engine: Kafka Connect, signals, PostgreSQL set-up, JVM libraries, local servers."""
