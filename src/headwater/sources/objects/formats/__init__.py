"""Formats of objects: each makes columns of contents, and says what it cannot."""
