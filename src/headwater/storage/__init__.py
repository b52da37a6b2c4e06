"""Object stores and local disks: list, read and write. Knows nothing of windows, sources or sinks."""
