"""``python -m fastdp``: the command line."""

from fastdp.cli import main

if __name__ == "__main__":
    main(prog_name="fastdp")
