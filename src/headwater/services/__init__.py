"""What stands around the engine: the JVM libraries, and local servers."""
