"""Where things are and how they are blurred: pure functions over arrays."""
