"""Over commits: a comparison whose false alarms are counted."""
