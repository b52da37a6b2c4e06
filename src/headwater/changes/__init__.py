"""Pure functions on changes: the last of each key, the origin of missing values, the versions of rows."""
