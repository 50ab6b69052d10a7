"""Prints what it finds: the package, its user, its arguments."""

import os
import sys

import tiny

print(tiny.word, os.getuid(), *sys.argv[1:], os.environ["PYTHONUNBUFFERED"])
