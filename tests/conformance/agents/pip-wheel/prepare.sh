mkdir wheels
python3 - <<END
import zipfile
with zipfile.ZipFile("wheels/tiny-1.0-py3-none-any.whl", "w") as wheel:
    wheel.writestr("tiny.py", "ANSWER = 42\n")
    info = "tiny-1.0.dist-info/"
    wheel.writestr(info + "METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
    wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    wheel.writestr(info + "RECORD", "".join(f"{name},,\n" for name in ["tiny.py", info + "RECORD"]))
END
