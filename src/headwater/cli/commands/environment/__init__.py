"""Commands about what surrounds pipelines: the machine, JVM libraries, local servers, Kafka Connect, PostgreSQL, Debezium."""
