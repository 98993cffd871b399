"""Files in any common shape to requests and rejects."""
