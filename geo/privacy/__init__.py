"""Noise and mechanisms: the only code that turns true positions into positions that may be published."""
