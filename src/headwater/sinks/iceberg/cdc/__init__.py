"""Tables that are made of changes: the current state, or the history of every row."""
