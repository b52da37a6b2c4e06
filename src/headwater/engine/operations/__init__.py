"""What an operator does to a pipeline beside its cycles: bookmarks, replays, rebuilds. Verification is in `verify/`."""
