"""From the slot's pgoutput messages to change rows: peeked and decoded in one pass."""
