"""Kafka Connect over its REST interface: connectors from files, their state, and templates."""
