"""What a night would be like, before it begins."""
