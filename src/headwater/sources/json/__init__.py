"""JSON as columns: exactly, or a reason why not. Shared by the sources that bring it."""
