"""The guard of the replication slot: is it the slot of the mark, and does it endanger the server?"""
