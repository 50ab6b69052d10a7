"""The build backend of this package (PEP 517). It needs nothing but Python, so the package that a daemon serves installs offline.

`PKG-INFO` is the metadata. Packages are reproducible: equal sources give equal files.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent
PACKAGE = ROOT / "src" / "burrow_sandbox"
SDIST = ["PKG-INFO", "README.md", "build_backend.py", "pyproject.toml"]
WHEEL = "Wheel-Version: 1.0\nGenerator: burrow\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def _version() -> str:
    lines = (ROOT / "PKG-INFO").read_text("utf-8").splitlines()
    return next(line.removeprefix("Version: ") for line in lines if line.startswith("Version: "))


def _sources() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*") if path.suffix in {".py", ".typed"})


def _metadata() -> str:
    # In a source package, the description follows the headers already.
    headers = (ROOT / "PKG-INFO").read_text("utf-8").split("\n\n")[0].rstrip("\n")
    return f"{headers}\n\n{(ROOT / 'README.md').read_text('utf-8')}"


def _write_wheel(path: Path, files: dict[str, bytes]) -> None:
    info = f"burrow_sandbox-{_version()}.dist-info"
    files = files | {f"{info}/METADATA": _metadata().encode(), f"{info}/WHEEL": WHEEL.encode()}
    record = ""
    for name, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(content)}\n"
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, content in files.items():
            # The earliest time of the format, and an ordinary file's mode.
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.external_attr = 0o100644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(entry, content)


def build_wheel(wheel_directory: str, config_settings: object = None, metadata_directory: object = None) -> str:
    """Writes the wheel and returns its file name."""
    name = f"burrow_sandbox-{_version()}-py3-none-any.whl"
    files = {path.relative_to(ROOT / "src").as_posix(): path.read_bytes() for path in _sources()}
    _write_wheel(Path(wheel_directory) / name, files)
    return name


def build_editable(wheel_directory: str, config_settings: object = None, metadata_directory: object = None) -> str:
    """Writes a wheel that refers to the sources, and returns its file name."""
    name = f"burrow_sandbox-{_version()}-py3-none-any.whl"
    _write_wheel(Path(wheel_directory) / name, {"burrow_sandbox.pth": f"{ROOT / 'src'}\n".encode()})
    return name


def build_sdist(sdist_directory: str, config_settings: object = None) -> str:
    """Writes the source package and returns its file name."""
    top = f"burrow_sandbox-{_version()}"
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in [*(ROOT / name for name in SDIST), *_sources()]:
            content = _metadata().encode() if path.name == "PKG-INFO" else path.read_bytes()
            entry = tarfile.TarInfo(f"{top}/{path.relative_to(ROOT).as_posix()}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    name = f"{top}.tar.gz"
    (Path(sdist_directory) / name).write_bytes(gzip.compress(packed.getvalue(), mtime=0))
    return name


if __name__ == "__main__":
    import sys

    print(build_sdist(sys.argv[1]))
