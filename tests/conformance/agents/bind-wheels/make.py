import sys
import zipfile
from pathlib import Path

target = Path(sys.argv[1])
target.mkdir()
with zipfile.ZipFile(target / "tiny-1.0-py3-none-any.whl", "w") as wheel:
    wheel.writestr("tiny.py", "ANSWER = 42\n")
    info = "tiny-1.0.dist-info/"
    wheel.writestr(info + "METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
    wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    wheel.writestr(info + "RECORD", f"tiny.py,,\n{info}RECORD,,\n")
