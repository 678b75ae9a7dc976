"""Structured output: answers that fit a JSON schema, a regular expression, a list or a grammar."""
