"""Systems that are read in windows; one file or folder each."""
