"""Noise and mechanisms: the only code that turns true positions and counts into what may be published."""
