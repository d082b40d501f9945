"""Durable agent sessions for Trio."""
