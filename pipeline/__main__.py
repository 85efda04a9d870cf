# SPDX-License-Identifier: Apache-2.0
"""`python -m pipeline` is the command `tokenmill`."""

import sys

from tokenmill.__main__ import main

if __name__ == "__main__":
    sys.exit(main())
