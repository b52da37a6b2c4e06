"""The local stack: real servers on this machine, one recipe each."""
