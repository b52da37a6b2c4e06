"""The command line: commands compute a value, an output object renders it."""
