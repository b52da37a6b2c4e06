"""Tables through Iceberg's Java API: lookup, creation, commits, tags, the landings in snapshots."""
