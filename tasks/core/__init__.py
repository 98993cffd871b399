"""The nouns every room shares. Standard library only."""
