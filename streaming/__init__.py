"""What happens to a record between the raw topic and the sanitized topics, in plain Python and arrays."""
