"""The cycle, and everything that makes it run: recovery, leases, the schedule, the Spark session."""
