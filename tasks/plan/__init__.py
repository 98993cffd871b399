"""Groups to the ordered night."""
