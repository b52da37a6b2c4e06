"""Rejects: collected while splits are read, landed before the rows, listed and replayed."""
