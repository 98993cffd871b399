"""Prefect flows and the command line; nothing else lives here."""
