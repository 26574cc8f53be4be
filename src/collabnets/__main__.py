"""``python -m collabnets`` is the command ``collabnets``."""

import sys

from collabnets.cli import main

sys.exit(main())
