"""Where state is written: files, copies, replays, and who may call."""
