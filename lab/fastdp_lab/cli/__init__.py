"""Commands of the laboratory, which join the group ``fastdp`` as entry points."""
