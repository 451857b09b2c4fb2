"""Coverage-guided fuzzing of everything that reads bytes from outside (needs the extra ``fuzz``: atheris).

A target takes bytes and may end in an error that a user is meant to read; anything else that it raises, and any law
that it finds broken, is a finding.
"""
