"""Databases behind JDBC drivers, polled through Spark's JVM."""
