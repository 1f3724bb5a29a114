"""Checks that a point must pass before its number may reach a table."""
