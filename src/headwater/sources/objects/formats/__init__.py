"""Formats of objects: each decodes contents into columns, and infers columns."""
