"""Numbers as float64, from lists, arrays, frames, Arrow and files."""
