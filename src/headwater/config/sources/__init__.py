"""Settings of the sources, one file each."""
