# Generated from _async/__init__.py by `tools/generate.py`: change that, and generate again.
