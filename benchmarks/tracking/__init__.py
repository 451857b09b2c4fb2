"""asv as a tracker: numbers of this commit for the machine's history, and asv's false alarms."""
