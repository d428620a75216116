"""Relation networks that copy, and an exam of what sequence models remember."""

__version__ = "0.1.0"
