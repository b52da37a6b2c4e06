"""From the slot's messages to change rows: looked through once by the process that peeks, decoded by the tasks."""
