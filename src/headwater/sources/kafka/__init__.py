"""Kafka topics, read by one offset per partition."""
