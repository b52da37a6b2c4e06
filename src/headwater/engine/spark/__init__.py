"""The Spark session and the transforms that need one."""
