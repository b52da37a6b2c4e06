"""Event notifications from object stores: they say where to look between two listings."""
