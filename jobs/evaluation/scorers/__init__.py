"""Scorers: each gives an answer a score. `registry` knows them all."""
