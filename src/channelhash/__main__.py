"""The process ``channelhash``; also ``python -m channelhash``, which is what ``torchrun``
starts.
"""

import gc

from channelhash.cli import listen

# Imports make hundreds of thousands of objects, of which none is garbage; looking for it after each
# 700 takes long.
_OBJECTS_BETWEEN_COLLECTIONS = 10_000


def main() -> None:
    """Obey signals from here on, then import and run the command line."""
    listen()
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    from channelhash.cli.main import main as run

    try:
        run()
    finally:
        gc.freeze()  # the process ends: its last look for garbage would take as long as the search


if __name__ == "__main__":
    main()
