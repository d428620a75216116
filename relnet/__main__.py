"""The command `relnet`, also `python -m relnet`: what needs no answer of PyTorch's, whose import takes seconds."""

import sys

import relnet


def main() -> int:
    """Run the command line and return the exit status; Ctrl-C ends it in one line from the first moment on."""
    if sys.argv[1:] == ["--version"]:
        print(f"relnet {relnet.__version__}")
        return 0
    try:
        from relnet import cli

        return cli.main()
    except KeyboardInterrupt:
        print("relnet: stopped", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
