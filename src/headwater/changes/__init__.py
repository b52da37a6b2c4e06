"""Pure functions on changes: which one is the last of its key, where its values come from, how versions follow."""
