"""What a user names to the files of each source, and what a source says of itself."""
