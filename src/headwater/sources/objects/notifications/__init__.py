"""Event notifications from object stores: they name keys to check between two listings."""
