"""Formats as one table: bytes in, columns, rows and rejects out, the same for every transport that carries them."""
