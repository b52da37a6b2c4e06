"""Source and table compared at one position, and what differs read again."""
