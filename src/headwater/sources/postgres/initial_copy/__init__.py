"""Tables copied at an exported snapshot, as change rows: what stands before the WAL's changes."""
