"""``python -m benchmarks.audit``: long audits of the mechanisms, of parts of publishers, and of negative controls."""
