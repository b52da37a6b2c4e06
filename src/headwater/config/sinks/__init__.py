"""Settings of the sinks, one file each."""
