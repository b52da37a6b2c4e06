"""What the engine asks of a source, a sink, a progress store and a lake; every implementation passes the contract of its kind."""
