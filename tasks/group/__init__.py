"""Requests to groups that are alike."""
