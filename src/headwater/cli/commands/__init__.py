"""One file a command, or a folder for a group of subcommands."""
