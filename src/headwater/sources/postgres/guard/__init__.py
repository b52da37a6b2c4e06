"""The guardian of the replication slot: is it the one that the mark was taken from, and does it endanger the server?

`slot_state.py` asks, `judging.py` decides, `acting.py` and `creating.py` act; `notes.py` are our messages in the log.
"""
