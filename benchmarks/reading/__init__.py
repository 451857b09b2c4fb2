"""Lines of fastdp that a reader of one family has before them: its door and all that the door imports."""
