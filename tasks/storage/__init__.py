"""Bytes on disk: the only caller of fsync and os.replace."""
