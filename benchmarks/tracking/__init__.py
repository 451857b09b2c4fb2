"""Over commits: the history of a named machine, and a comparison whose false alarms are counted."""
