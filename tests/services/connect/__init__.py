"""Kafka Connect: files, settings, masking, and the client on the run's worker."""
