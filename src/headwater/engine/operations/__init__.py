"""What an operator does to a pipeline beside its cycles: bookmarks, replays, rebuilds. Verification has its own room."""
