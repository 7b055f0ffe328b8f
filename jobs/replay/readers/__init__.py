"""One module a format: which files are in it, and how they are read, in columns and a bounded piece at a time."""
