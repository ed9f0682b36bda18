"""`python -m dpnlp` is the command `dpnlp`."""

import sys

from dpnlp.cli.main import main

sys.exit(main())
