"""The program `wayveil demo`: a bundled sample through the whole product, and what came out beside what is promised."""
