"""Programs of the machine, used where they are installed: LibreOffice, tesseract, pdftotext.

Without them ``formats`` reads and writes what it can, and there is no OCR.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

TIMEOUT_S = 90.0


def find(*names: str) -> str | None:
    return next(filter(None, map(shutil.which, names)), None)


def office_to_pdf(source: Path, target: Path) -> bool:
    """By LibreOffice; False where it, or what reads its PDFs back, is not there or fails."""
    soffice = find("soffice", "libreoffice")
    if soffice is None or find("pdftotext") is None:
        return False
    with tempfile.TemporaryDirectory(prefix="soffice-") as scratch:
        command = [
            soffice,
            "--headless",
            "--norestore",
            f"-env:UserInstallation=file://{scratch}/p",
        ]
        command += ["--convert-to", "pdf", "--outdir", scratch, str(source)]
        try:
            subprocess.run(command, capture_output=True, timeout=TIMEOUT_S, check=False)
        except subprocess.TimeoutExpired:
            return False
        made = Path(scratch, f"{source.stem}.pdf")
        if made.is_file():
            shutil.copyfile(made, target)
        return made.is_file()


def pdf_text(file: Path) -> list[str] | None:
    """The lines of a PDF by pdftotext; None where it is not there."""
    tool = find("pdftotext")
    if tool is None:
        return None
    done = subprocess.run([tool, "-layout", file, "-"], capture_output=True, check=False)
    if done.returncode:
        raise ValueError(f"{file.name} is not a PDF that can be read")
    return [line.strip() for line in done.stdout.decode(errors="replace").splitlines()]


def image_text(image: Path) -> str:
    """What tesseract reads in an image."""
    tool = find("tesseract")
    if tool is None:
        raise ValueError("there is no OCR here: tesseract is not installed")
    done = subprocess.run([tool, image, "-"], capture_output=True, timeout=TIMEOUT_S, check=False)
    if done.returncode:
        raise ValueError(f"tesseract cannot read {image.name}")
    return done.stdout.decode(errors="replace").strip()
