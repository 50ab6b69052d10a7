# Generated from _async/__init__.py by `tools/generate.py`. Do not edit: edit the source and run the generator.
