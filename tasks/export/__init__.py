"""A run's outcomes to files in the shapes that people expect."""
