"""The process ``channelhash``; also ``python -m channelhash``, which is what ``torchrun`` starts."""

from channelhash.cli.stopping import listen


def main() -> None:
    """Obey signals from here on, then import and run the command line."""
    listen()
    from channelhash.cli.main import main as run

    run()


if __name__ == "__main__":
    main()
