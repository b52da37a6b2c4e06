"""Tables at one exported snapshot, as change rows: what stands before the log's changes."""
