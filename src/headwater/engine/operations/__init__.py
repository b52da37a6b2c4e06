"""What is done to a pipeline beside its cycles: windows for Python code, bookmarks, replays, rebuilds; not `verify/`."""
