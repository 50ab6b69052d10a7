"""Generates the types from the OpenAPI document, and the synchronous interface from the asynchronous one.

python tools/generate.py            writes the files that are out of date
python tools/generate.py --check    only lists them, and fails if there are any
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from types_from_openapi import Document, params_module, types_module
from unasync import unasync

SDK = Path(__file__).parent.parent
PACKAGE = SDK / "src" / "burrow_sandbox"
OPENAPI = SDK.parent.parent / "docs" / "openapi.json"


def generated() -> dict[Path, str]:
    """The expected content of every generated file."""
    document = Document(OPENAPI.read_text(encoding="utf-8"))
    files = {
        PACKAGE / "types.py": types_module(document),
        PACKAGE / "params.py": params_module(document),
    }
    for source in sorted((PACKAGE / "_async").glob("*.py")):
        text = source.read_text(encoding="utf-8")
        files[PACKAGE / "_sync" / source.name] = unasync(text, f"_async/{source.name}")
    return formatted(files)


def formatted(files: dict[Path, str]) -> dict[Path, str]:
    """The files as ruff formats them."""
    with tempfile.TemporaryDirectory() as folder:
        for path, text in files.items():
            copy = folder / path.relative_to(SDK)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(text, encoding="utf-8")
        for verb in (["check", "--select", "I,F401", "--fix"], ["format"]):
            command = [sys.executable, "-m", "ruff", *verb, "--quiet", "--no-cache"]
            subprocess.run([*command, "--config", str(SDK / "pyproject.toml"), folder], check=True)
        return {path: (folder / path.relative_to(SDK)).read_text(encoding="utf-8") for path in files}


def main() -> int:
    """Writes the generated files, or compares them."""
    files = generated()
    stale = [path for path, text in files.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    stray = [path for path in (PACKAGE / "_sync").glob("*.py") if path not in files]
    if "--check" in sys.argv[1:]:
        for path in stale + stray:
            print(f"{path.relative_to(SDK)} is out of date: run `python tools/generate.py`", file=sys.stderr)
        return 1 if stale or stray else 0
    for path in stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(files[path], encoding="utf-8")
        print(f"wrote {path.relative_to(SDK)}")
    for path in stray:
        path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
