"""``python -m channelhash``: what ``torchrun`` starts."""

from channelhash.cli.main import main

main()
