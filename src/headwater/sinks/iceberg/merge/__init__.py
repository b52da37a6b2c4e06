"""Updates of a table: append, replace, upsert by key, replacement of objects; key lookup, copy-on-write, MERGE."""
