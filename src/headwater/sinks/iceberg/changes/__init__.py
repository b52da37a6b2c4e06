"""Changes become tables: the current state, or the history of every row."""
